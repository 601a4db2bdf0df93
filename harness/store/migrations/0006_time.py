"""Schedules and tags."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = (("store", "0005_money"),)
    operations = ()
