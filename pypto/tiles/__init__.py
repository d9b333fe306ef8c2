"""A distributed value, moving it between layouts, and agreeing on failures."""
