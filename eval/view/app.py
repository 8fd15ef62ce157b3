"""The viewer's web application: addresses in, pages out. Reads run folders and writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from configs.text import ConfigError
from eval.report.run_report import report_html
from eval.report.variants_report import comparison_html
from eval.result import EvalError
from eval.runfolder import RunFolder
from eval.view.catalogue import Catalogue, Check, UnknownRun
from eval.view.index import TrajectoryIndex
from eval.view.methods import Disputes, MakeMethods, Scored, Scorer
from eval.view.pages import HERE, Pages
from eval.view.query import PAGE, BadQuery, Query, number
from eval.view.steps import TrajectoryView, step_rows, trajectory_view
from eval.view.tokens import LEARNER, prompt_ids, response_tokens, tokenizer_of

HOSTS = ["127.0.0.1", "localhost", "[::1]"]
"""Names by which the page may be asked for: another site's name that resolves to this machine is refused."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Viewer:
    """What the addresses share: the runs, an index of each run looked at, and the methods' results."""

    def __init__(self, catalogue: Catalogue, make_methods: MakeMethods, offered: Mapping[str, str]) -> None:
        self.catalogue, self.offered = catalogue, offered
        self.scorer = Scorer(make_methods)
        self.disputes = Disputes(self.scorer)
        self._indices: dict[Path, TrajectoryIndex] = {}
        self._lock = threading.Lock()
        self.drawing = threading.Lock()  # matplotlib's settings are one for all threads

    def index(self, run: str) -> TrajectoryIndex:
        """Returns a run's index, up to date."""
        path = self.catalogue.path(run)
        with self._lock:
            index = self._indices.setdefault(path, TrajectoryIndex(path / "trajectories"))
        index.refresh()
        return index

    def check_methods(self, names: tuple[str, ...]) -> None:
        """Raises BadQuery unless a recording can give what every method needs."""
        for name in names:
            if self.offered.get(name, "unknown"):
                reason = self.offered.get(name) or "there is no such method"
                able = ", ".join(method for method, why in self.offered.items() if not why)
                raise BadQuery(f"methods={name!r} cannot be shown: {reason}. Methods that can: {able}")

    def scored(self, run: str, update: int, file: Path, names: tuple[str, ...]) -> Scored | None:
        """Returns what methods say about an update, None without methods."""
        return self.scorer.score(self.catalogue.path(run), update, file, names) if names else None


def create_app(
    root: Path, make_methods: MakeMethods, offered: Mapping[str, str], check: Check = lambda _: None
) -> FastAPI:
    """Returns the application over the runs below `root`.

    Args:
        root: Folder of run folders.
        make_methods: Builds credit methods as a run's experiment would.
        offered: Method → why a recording cannot give what it needs, "" if it can.
        check: Returns what is wrong with a run's configuration, None if nothing.
    """
    app = FastAPI(title="Sibling viewer", docs_url=None, redoc_url=None, openapi_url=None)
    viewer, page = Viewer(Catalogue(root, check), make_methods, offered), Pages()
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
    _add_run_pages(app, viewer, page)
    _add_trajectory_pages(app, viewer, page)
    _add_errors(app, page)
    app.mount("/static", StaticFiles(directory=HERE / "static"))

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        response: Response = await call_next(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-cache"
        return response

    return app


def _add_run_pages(app: FastAPI, viewer: Viewer, page: Pages) -> None:
    @app.get("/", response_class=HTMLResponse)
    def runs() -> str:
        return page("runs.html.j2", cards=viewer.catalogue.cards(), root=viewer.catalogue.root.name)

    @app.get("/base.css")
    def base() -> FileResponse:
        return FileResponse(HERE.parent / "report" / "templates" / "report.css")

    @app.get("/compare", response_class=HTMLResponse)
    def compare(request: Request) -> str:
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(names) < 2:
            raise BadQuery("a comparison needs two runs or more: tick them in the list of runs")
        folders = [RunFolder.read(viewer.catalogue.path(name)) for name in names]
        with viewer.drawing:
            return comparison_html(folders)

    @app.get("/report/{run:path}", response_class=HTMLResponse)
    def report(run: str) -> str:
        folder = RunFolder.read(viewer.catalogue.path(run))
        with viewer.drawing:
            return report_html(folder)


def _add_trajectory_pages(app: FastAPI, viewer: Viewer, page: Pages) -> None:
    @app.get("/runs/{run:path}", response_class=HTMLResponse)
    def trajectories(run: str, request: Request) -> str:
        query = Query.read(request.query_params.multi_items())
        card = viewer.catalogue.card(run)
        viewer.check_methods(query.methods)
        index = viewer.index(run)
        path = viewer.catalogue.path(run)
        done = viewer.disputes.ensure(path, index, query.methods) if query.compares else None
        entries, total = index.page(query)
        pages = max(-(-total // PAGE), 1)
        if query.page > pages:  # of an address from before a filter, or from a run that had more
            query = replace(query, page=pages)
            entries, _ = index.page(query)
        view, scored = _open(viewer, run, index, query, entries)
        return page(
            "run.html.j2",
            run=run,
            card=card,
            query=query,
            facets=index.facets(),
            lost=index.lost,
            entries=entries,
            total=total,
            pages=pages,
            working=done if done and done[0] < done[1] else None,
            view=view,
            stateful=scored.stateful if scored else (),
            offered=viewer.offered,
        )

    @app.get("/step/{run:path}", response_class=HTMLResponse)
    def step(run: str, request: Request) -> str:
        query, t = Query.read(request.query_params.multi_items()), number(request.query_params, "t")
        viewer.check_methods(query.methods)
        if query.open is None or t is None:
            raise BadQuery("the address of a step names update, trajectory and step: ?u=1&i=0&t=0")
        index = viewer.index(run)
        view, _ = _open(viewer, run, index, query, [])
        if view is None or t >= len(view.steps):
            raise UnknownRun(f"run {run!r} has no step {t} of that trajectory")
        rows = step_rows(index.files()[query.open[0]], query.open[1])
        tokenizer = tokenizer_of(RunFolder.read(viewer.catalogue.path(run)))
        ids = prompt_ids(rows, t)
        return page(
            "step.html.j2",
            run=run,
            query=query,
            step=view.steps[t],
            row=rows[t],
            prompt=None if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False),
            prompt_tokens=len(ids),
            tokens=response_tokens(rows[t], tokenizer),
            learner=LEARNER in rows[t],
            matched=[(match, _at(index, query, match.place)) for match in view.steps[t].matches],
        )


def _at(index: TrajectoryIndex, query: Query, place: Any) -> Mapping[str, Any]:
    """The columns of a sibling's step."""
    view = trajectory_view(index.files()[query.open[0]], place.trajectory, None)
    return next(step.row for step in view.steps if step.row["t"] == place.t)


def _open(
    viewer: Viewer, run: str, index: TrajectoryIndex, query: Query, entries: list[dict[str, Any]]
) -> tuple[TrajectoryView | None, Scored | None]:
    """The trajectory that the address opens, or the first of the list."""
    opened = query.open or next(((e["update"], e["trajectory"]) for e in entries), None)
    if opened is None:
        return None, None
    file = index.file(opened[0])
    if file is None:
        raise UnknownRun(f"run {run!r} has no update {opened[0]} that can be shown")
    scored = viewer.scored(run, opened[0], file, query.methods)
    view = trajectory_view(file, opened[1], scored)
    if view is None:
        raise UnknownRun(f"update {opened[0]} of run {run!r} has no trajectory {opened[1]}")
    return view, scored


def _add_errors(app: FastAPI, page: Pages) -> None:
    def failed(status: int, message: str) -> HTMLResponse:
        return HTMLResponse(page("error.html.j2", status=status, message=message), status)

    @app.exception_handler(HTTPException)
    def http(_: Request, error: HTTPException) -> HTMLResponse:
        return failed(
            error.status_code, "There is no such page." if error.status_code == 404 else error.detail
        )

    @app.exception_handler(UnknownRun)
    def unknown(_: Request, error: UnknownRun) -> HTMLResponse:
        return failed(404, str(error))

    @app.exception_handler(EvalError)
    @app.exception_handler(ConfigError)
    def wrong(_: Request, error: Exception) -> HTMLResponse:
        return failed(400 if isinstance(error, BadQuery) else 422, str(error))
