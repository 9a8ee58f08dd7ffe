//! Podman, through the Docker-compatible socket of `podman system service`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use plimsoll_test_support::report::Runner;

use crate::docker::{self, Engine};
use crate::scene::{Daemon, READY, Scene, output, program};
use plimsoll_test_support::image;

pub fn cases(runner: &mut Runner<impl Write>, scene: &mut Scene) {
    let podman = match Podman::new(scene) {
        Ok(podman) => podman,
        Err(error) => return runner.case("podman_is_set_up", || Err(error)),
    };
    docker::engine_cases(runner, scene, &podman);
}

#[derive(Debug)]
struct Podman {
    program: PathBuf,
    socket: PathBuf,
    directory: PathBuf,
    cgroup: String,
}

impl Podman {
    fn new(scene: &Scene) -> Result<Self> {
        let directory = scene.path("podman");
        let path = directory.display();
        // Files of its own for everything that would otherwise be shared with the machine's podman.
        let config = format!(
            r#"[containers]
# Its own defaults are above what a process without CAP_SYS_RESOURCE may set.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
tmp_dir = "{path}/tmp"
static_dir = "{path}/static"
volume_path = "{path}/volumes"
[network]
network_config_dir = "{path}/networks"
"#
        );
        // The vfs driver copies files, and so works on whatever file system this is.
        let storage = format!(
            r#"[storage]
driver = "vfs"
graphroot = "{path}/root"
runroot = "{path}/run"
"#
        );
        scene.write("podman/containers.conf", config)?;
        scene.write("podman/storage.conf", storage)?;
        scene.write(
            "podman/policy.json",
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        )?;
        Ok(Self {
            program: program("podman").context("podman is not installed")?,
            socket: scene.path("podman.sock"),
            directory,
            cgroup: format!("{}/podman", scene.cgroup),
        })
    }

    /// The program with this scene's settings.
    fn command(&self) -> Command {
        let mut podman = Command::new(&self.program);
        podman
            .env("CONTAINERS_CONF", self.directory.join("containers.conf"))
            .env(
                "CONTAINERS_STORAGE_CONF",
                self.directory.join("storage.conf"),
            );
        podman
    }

    /// The program as a client of the service.
    fn remote(&self) -> Command {
        let mut podman = self.command();
        podman.args([
            "--remote",
            "--url",
            &format!("unix://{}", self.socket.display()),
        ]);
        podman
    }
}

impl Engine for Podman {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn flag(&self) -> String {
        format!("--podman=unix://{}", self.socket.display())
    }

    fn start(&self, scene: &mut Scene) -> Result<Daemon> {
        let mut service = self.command();
        service.args(["system", "service", "--time", "0"]);
        service.arg(format!("unix://{}", self.socket.display()));
        let mut daemon = scene.daemon("podman", &mut service)?;
        daemon.wait_ready(READY, || output(self.remote().arg("version")).map(|_| ()))?;
        Ok(daemon)
    }

    fn load_image(&self, scene: &Scene) -> Result<()> {
        let archive = scene.write("image.tar", image::oci_archive(&[image::NAME])?)?;
        output(self.command().args(["load", "--input"]).arg(archive))?;
        Ok(())
    }

    fn client(&self) -> Command {
        self.remote()
    }

    fn cgroup_of(&self, id: &str) -> String {
        format!("{}/libpod-{id}", self.cgroup)
    }

    fn run_arguments(&self) -> Vec<String> {
        vec![format!("--cgroup-parent={}", self.cgroup)]
    }
}
