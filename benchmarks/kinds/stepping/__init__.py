"""A kind whose steps do nothing: what a step costs by itself."""
