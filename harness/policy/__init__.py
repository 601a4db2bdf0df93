"""Pure decisions: frozen facts and `now_s` in, values out. Standard library only; see README.md."""
