"""Bounds of weights and quotas in the database too: no NaN, no infinity, nothing negative."""

from django.db import migrations, models

# What an older form let through: the usual share, the nearest bound, and nothing.
_MEND = """
UPDATE tenant SET weight = CASE WHEN weight = 'NaN' THEN 1 ELSE least(greatest(weight, 1e-6), 1e6) END
WHERE weight = 'NaN' OR weight NOT BETWEEN 1e-6 AND 1e6;
UPDATE quota SET cap = 0 WHERE cap < 0;
DELETE FROM quota WHERE scope NOT IN ('pool', 'resource');
"""


class Migration(migrations.Migration):
    dependencies = (("store", "0015_reasons"),)
    operations = (
        migrations.RunSQL(_MEND, migrations.RunSQL.noop),
        # Deferred trigger events of the rows mended would keep the table from being altered in the same transaction.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.RemoveConstraint(model_name="tenant", name="tenant_weight_above_0"),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("weight__gte", 1e-06), ("weight__lte", 1000000.0)), name="tenant_weight_in_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.CheckConstraint(condition=models.Q(("cap__gte", 0)), name="quota_cap_from_0"),
        ),
        migrations.AddConstraint(
            model_name="quota",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope__in", ("pool", "resource"))), name="quota_scope_known"
            ),
        ),
    )
