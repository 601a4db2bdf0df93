"""Pages of docs/reference, written from the code: settings, API, errors. `manage.py reference_doc` writes them."""
