"""Cheaper forms of work: which one a lease runs in, and whether a tenant and a task allow them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("store", "0020_pressure"),)
    operations = (
        migrations.AddField(model_name="lease", name="degraded", field=models.TextField(null=True)),
        migrations.AddField(model_name="task", name="degrade", field=models.BooleanField(db_default=True)),
        migrations.AddField(model_name="tenant", name="degrade", field=models.BooleanField(db_default=True)),
    )
