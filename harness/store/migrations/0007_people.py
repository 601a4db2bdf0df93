"""Admin."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = (("store", "0006_time"),)
    operations = ()
