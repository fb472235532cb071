"""camapp serve: the web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camapp.cli.options import DeviceOption, ModelOption, ModelsOption, RandomOption


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1 is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 7860,
    model: ModelOption = "efficientnet_lite0",
    models: ModelsOption = None,
    device: DeviceOption = "auto",
    random_weights: RandomOption = False,
    max_queue: Annotated[int, typer.Option(help="Requests that may wait; further ones are refused.", min=1)] = 16,
    auth_file: Annotated[
        Path | None,
        typer.Option(help="File of lines name:password, readable by its owner only; asks visitors for them."),
    ] = None,
    root_path: Annotated[
        str | None, typer.Option(help="Path or address of the page behind a proxy, such as /camapp.")
    ] = None,
    trusted_host: Annotated[
        list[str] | None, typer.Option(help="Name under which a proxy hands requests on to 127.0.0.1; repeatable.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the web page."""
    from camapp.ui.app import serve as serve_page

    serve_page(
        host,
        port,
        model=model,
        models=models,
        device=device,
        random_weights=random_weights,
        open_browser=open_browser,
        max_queue=max_queue,
        auth_file=auth_file,
        root_path=root_path,
        trusted_hosts=trusted_host or (),
    )
