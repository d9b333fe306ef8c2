"""Nodes that say what is to be computed, and the programs cut from them."""
