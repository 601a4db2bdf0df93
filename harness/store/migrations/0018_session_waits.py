"""How long a worker process's threads wait for connections, told with its beat."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("store", "0017_resources"),)
    operations = (migrations.AddField(model_name="workersession", name="waits", field=models.JSONField(db_default={})),)
