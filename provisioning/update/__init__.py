"""Updates: the releases that devices can go to, and which device gets which."""
