"""Who owns what: process grids, layouts, and the distributions that users write. Pure values; a rank is an argument."""
