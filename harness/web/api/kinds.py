"""The registered kinds over HTTP, with the schema that their input is checked against."""

from django.http import HttpRequest, HttpResponse
from ninja import Router

from harness.kinds import registry
from harness.web.api import answers
from harness.web.api.auth import READ
from harness.web.api.schemas import KindOut, Kinds, Problem

router = Router(tags=["kinds"])


@router.get("", auth=READ, response={200: Kinds, (401, 403, 503): Problem}, summary="List kinds")
async def list_kinds(request: HttpRequest) -> HttpResponse:
    """List what can be submitted."""
    items = [
        KindOut(
            name=kind.name,
            version=kind.version,
            pool=kind.pool,
            resources=kind.may_need(),
            timeout_s=kind.timeout_s,
            max_attempts=kind.max_attempts,
            bundle=kind.bundle,
            costs=kind.costs,
            cheaper_forms=[form.name for form in kind.degrade],
            input_schema=kind.input.model_json_schema(),
            output_schema=kind.output.model_json_schema() if kind.output else None,
        )
        for kind in registry.all_kinds()
    ]
    return answers.answer(Kinds(items=items))
