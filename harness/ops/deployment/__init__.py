"""`manage.py deploy_check`: whether this deployment is fit to be sent traffic. Everything here only reads."""
