"""What agent and server share as HTTP servers: Hypercorn, tokens, the Host check, XML-RPC."""
