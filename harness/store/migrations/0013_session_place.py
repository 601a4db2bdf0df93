"""Where a worker's process number counts, so that its own machine can tell that it is gone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("store", "0012_steps"),)
    operations = (migrations.AddField(model_name="workersession", name="place", field=models.TextField(null=True)),)
