"""The five stages, each load -> decide -> commit: submit, dispatch, execute, downstream, settle; sweep beside the line."""
