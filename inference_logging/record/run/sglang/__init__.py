"""SGLang: its HTTP server with the middleware, by the plugin that it loads."""
