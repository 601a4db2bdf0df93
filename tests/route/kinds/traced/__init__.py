"""Work with a step and a call, for its trace."""
