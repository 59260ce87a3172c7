from nats_bridge.cli import main

main()
