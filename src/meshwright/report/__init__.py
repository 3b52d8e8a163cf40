"""Reports: an answer as one HTML file that opens anywhere, without network. A face beside ``cli``."""
