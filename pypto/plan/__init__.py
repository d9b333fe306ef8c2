"""What a program will do: layouts, movements, memory; before anything runs."""
