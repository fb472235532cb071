"""camapp serve: the web page."""

from __future__ import annotations

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
    )
