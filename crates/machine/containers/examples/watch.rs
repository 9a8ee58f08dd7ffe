//! Prints what comes and goes on this machine, one line a change.
//!
//! `cargo run --example watch -- containerd=/run/containerd/containerd.sock docker=/run/docker.sock`

use std::error::Error;
use std::io::{IsTerminal, stderr};

use plimsoll_containers::runtime::{Endpoint, socket_path};
use plimsoll_containers::{Config, ContainerEvent};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::{HostRoot, ReadBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let ansi = stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter("info,plimsoll_containers=debug")
        .with_writer(stderr)
        .with_ansi(ansi)
        .init();
    let root = HostRoot::detect();
    let hierarchies = Hierarchies::detect(&root, &mut ReadBuf::default())?;
    let mut config = Config::new(hierarchies);
    config.env_whitelist = vec!["PATH".to_owned()];
    for argument in std::env::args().skip(1) {
        config.runtimes.push(endpoint(&argument)?);
    }
    let tokio = tokio::runtime::Runtime::new()?;
    let (_handle, changes) = config.build()?.spawn(tokio.handle())?;
    for change in changes {
        match change {
            ContainerEvent::Appeared {
                path,
                identity_pending,
            } => println!("appeared {path} awaiting={identity_pending}"),
            ContainerEvent::NoRuntime { path } => println!("unclaimed {path}"),
            ContainerEvent::Identified { path, identity } => {
                println!("identified {path} {identity:?}")
            }
            ContainerEvent::Vanished { path, exit_code } => {
                println!("vanished {path} {exit_code:?}")
            }
        }
    }
    Ok(())
}

fn endpoint(argument: &str) -> Result<Endpoint, String> {
    let (kind, address) = argument.split_once('=').ok_or("want kind=socket")?;
    let socket = socket_path(address).ok_or("want a unix socket")?;
    let namespace = "k8s.io".to_owned();
    match kind {
        "containerd" => Ok(Endpoint::Containerd { socket, namespace }),
        "cri" => Ok(Endpoint::Cri { socket }),
        "docker" => Ok(Endpoint::Docker { socket }),
        "podman" => Ok(Endpoint::Podman { socket }),
        other => Err(format!("unknown runtime {other}")),
    }
}
