"""Collective algorithms, one a file: what each costs in NCCL's model. ``costmodel.nccl`` chooses among them.

A file provides ``NAME``, ``COLLECTIVES``, ``SPEAKS``, ``available`` and ``cost`` (``costmodel.nccl.Algorithm``); it
joins by lying here, in a ``costmodel/collective`` folder of ``MESHWRIGHT_PATH``, or as an entry point of the group
``meshwright.collective``.
"""
