"""The web page: ``python app.py``, ``gradio app.py``, or a Hugging Face Space as it is."""

from __future__ import annotations

import os
import sys

from camapp.errors import CamappError

try:
    from camapp.ui.app import PORT, build

    demo = build()
    if __name__ == "__main__":
        # GRADIO_SERVER_NAME and GRADIO_SERVER_PORT are how a Space or a container says where to serve.
        demo.launch(server_port=int(os.environ.get("GRADIO_SERVER_PORT", PORT)))
except CamappError as error:
    sys.exit(f"camapp: {error}")
