"""Documents."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = (("store", "0003_artifacts"),)
    operations = ()
