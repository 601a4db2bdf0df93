"""The stages: submit, dispatch, execute, downstream, settle; sweep beside the line. Each: load, decide, commit."""
