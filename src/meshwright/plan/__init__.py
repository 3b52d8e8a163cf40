"""The search over layouts: space, search, Pareto front, why the runners-up lose, what to change when nothing fits."""
