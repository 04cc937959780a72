"""The claims, one file each, found by name. `quantities(data)` returns numbers and holds no threshold."""
