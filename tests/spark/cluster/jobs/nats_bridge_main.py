from nats_bridge.bridge.cli import main

main()
