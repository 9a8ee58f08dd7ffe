//! Docker Engine, and what it has in common with every other program that speaks its interface.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::{LeaveOut, Runner};

use crate::scene::{Daemon, NAMED, READY, Scene, output, program, wait_gone, wait_row};
use plimsoll_test_support::image;

/// What dockerd says where this machine, and not the test, keeps it from starting.
const CANNOT_START: [&str; 4] = [
    "operation not permitted",
    "permission denied",
    "Devices cgroup isn't mounted",
    "driver not supported",
];

/// A program with Docker's command line and socket.
pub trait Engine {
    /// The namespace that cAdvisor gives its containers.
    fn name(&self) -> &'static str;
    /// The agent's flag that names the socket.
    fn flag(&self) -> String;
    /// Starts the service and waits until it answers.
    fn start(&self, scene: &mut Scene) -> Result<Daemon>;
    fn load_image(&self, scene: &Scene) -> Result<()>;
    /// The command line client, set to the socket.
    fn client(&self) -> Command;
    fn cgroup_of(&self, id: &str) -> String;
    /// What `run` needs to know beyond the usual.
    fn run_arguments(&self) -> Vec<String>;
}

#[derive(Debug)]
struct Running {
    id: String,
    name: String,
    cgroup: String,
}

impl Running {
    fn start(engine: &impl Engine, name: &str) -> Result<Self> {
        let id = output(
            engine
                .client()
                .args([
                    "run",
                    "--detach",
                    "--network",
                    "none",
                    "--stop-timeout",
                    "1",
                    "--name",
                    name,
                ])
                .args([
                    "--label",
                    &format!("test.purpose={name}"),
                    "--memory",
                    "64m",
                ])
                .args(engine.run_arguments())
                .args([image::NAME, "sleep", "3600"]),
        )?;
        let id = id.trim().to_owned();
        let cgroup = engine.cgroup_of(&id);
        Ok(Self {
            id,
            name: name.to_owned(),
            cgroup,
        })
    }

    fn is_named(&self, agent: &Agent) -> Result<()> {
        let labels = [
            ("name", self.name.as_str()),
            ("image", image::NAME),
            ("container_label_test_purpose", self.name.as_str()),
        ];
        wait_row(agent, "/metrics", &self.cgroup, &labels)?;
        Ok(())
    }
}

/// The same story for each engine: late start, normal work, restart, removal.
pub fn engine_cases(runner: &mut Runner<impl Write>, scene: &mut Scene, engine: &impl Engine) {
    let mut stage: Option<(Agent, Daemon, Vec<Running>)> = None;
    runner.setup(&format!("{}_starts_after_agent", engine.name()), || {
        let agent = scene.agent(&[&engine.flag()])?;
        let daemon = engine.start(scene)?;
        engine.load_image(scene)?;
        let running = Running::start(engine, "late")?;
        let (agent, _, running) = stage.insert((agent, daemon, vec![running]));
        running[0].is_named(agent)?;
        Ok(String::new())
    });
    let Some((agent, daemon, running)) = &mut stage else {
        return;
    };

    runner.case(&format!("{}_container", engine.name()), || {
        let container = Running::start(engine, "normal")?;
        container.is_named(agent)?;
        let info = agent.json(&format!("/api/v1.3/containers{}", container.cgroup))?;
        ensure!(
            info["namespace"] == engine.name(),
            "namespace is {}",
            info["namespace"]
        );
        ensure!(
            info["aliases"] == serde_json::json!([container.name, container.id]),
            "aliases are {}",
            info["aliases"]
        );
        ensure!(
            info["spec"]["image"] == image::NAME,
            "image is {}",
            info["spec"]["image"]
        );
        // The engine sets limits after it made the cgroup.
        poll::until("the memory limit shows", NAMED, || {
            let info = agent.json(&format!("/api/v1.3/containers{}", container.cgroup))?;
            let memory = &info["spec"]["memory"];
            ensure!(memory["limit"] == 64 << 20, "memory is {memory}");
            Ok(Some(()))
        })?;
        let by_name = agent.json(&format!(
            "/api/v2.0/spec/{}?type={}",
            container.name,
            engine.name()
        ))?;
        ensure!(
            by_name.get(&container.cgroup).is_some(),
            "by name: {by_name}"
        );
        running.push(container);
        Ok(String::new())
    });

    runner.case(&format!("{}_restarts", engine.name()), || {
        daemon.stop()?;
        let known = |agent: &Agent| {
            running
                .iter()
                .try_for_each(|container| container.is_named(agent))
        };
        let meanwhile = known(agent);
        // First of all the engine is back, whatever was found without it: later cases need it.
        *daemon = engine.start(scene)?;
        meanwhile.context("while the engine was away")?;
        known(agent)?;
        let container = Running::start(engine, "after-restart")?;
        let named = container.is_named(agent);
        running.push(container);
        named?;
        Ok(String::new())
    });

    runner.case(&format!("{}_starts_before_agent", engine.name()), || {
        let second = scene.agent(&[&engine.flag()])?;
        for container in running.iter() {
            container.is_named(&second)?;
        }
        second.stop()?;
        Ok(String::new())
    });

    runner.case(&format!("{}_removed_containers_go", engine.name()), || {
        for container in running.drain(..) {
            output(engine.client().args(["rm", "--force", &container.id]))?;
            wait_gone(agent, &container.cgroup)?;
        }
        Ok(String::new())
    });
}

pub fn cases(runner: &mut Runner<impl Write>, scene: &mut Scene) {
    let docker = match Docker::new(scene) {
        Ok(docker) => docker,
        Err(error) => return runner.case("docker_is_set_up", || Err(error)),
    };
    // Not every machine lets this daemon start: inside a container it often cannot.
    let mut starts = false;
    runner.setup("docker_daemon_starts", || {
        let mut daemon = docker.start(scene).map_err(|error| {
            let text = format!("dockerd does not start on this machine: {error:#}");
            match CANNOT_START.iter().any(|reason| text.contains(reason)) {
                true => LeaveOut(text).into(),
                false => error,
            }
        })?;
        daemon.stop()?;
        starts = true;
        Ok(String::new())
    });
    if starts {
        engine_cases(runner, scene, &docker);
    }
}

#[derive(Debug)]
struct Docker {
    daemon: PathBuf,
    client: PathBuf,
    socket: PathBuf,
    cgroup: String,
}

impl Docker {
    fn new(scene: &Scene) -> Result<Self> {
        Ok(Self {
            daemon: program("dockerd").context("docker.io is not installed")?,
            client: program("docker").context("docker.io has no client")?,
            socket: scene.path("docker.sock"),
            cgroup: format!("{}/docker", scene.cgroup),
        })
    }
}

impl Engine for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn flag(&self) -> String {
        format!("--docker=unix://{}", self.socket.display())
    }

    fn start(&self, scene: &mut Scene) -> Result<Daemon> {
        let mut dockerd = Command::new(&self.daemon);
        dockerd
            .arg("--data-root")
            .arg(scene.path("docker-root"))
            .arg("--exec-root")
            .arg(scene.path("docker-exec"))
            .arg("--pidfile")
            .arg(scene.path("docker.pid"))
            .args(["--host", &format!("unix://{}", self.socket.display())])
            .args(["--cgroup-parent", &self.cgroup])
            // No networks and no firewall rules: the machine's own stay untouched.
            .args([
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
            ])
            .args([
                "--storage-driver=vfs",
                "--exec-opt=native.cgroupdriver=cgroupfs",
            ])
            // Containers outlive the daemon, as they do where it is updated in service.
            .arg("--live-restore")
            .args(["--oom-score-adjust=0", "--config-file"])
            .arg(scene.write("docker.json", "{}")?);
        let mut daemon = scene.daemon("docker", &mut dockerd)?;
        daemon.wait_ready(READY, || output(self.client().arg("version")).map(|_| ()))?;
        Ok(daemon)
    }

    fn load_image(&self, scene: &Scene) -> Result<()> {
        // This version does not read OCI layouts; a root file system becomes an image by itself.
        let layer = scene.write("layer.tar", image::layer()?)?;
        output(self.client().arg("import").arg(layer).arg(image::NAME))?;
        Ok(())
    }

    fn client(&self) -> Command {
        let mut docker = Command::new(&self.client);
        docker.args(["--host", &format!("unix://{}", self.socket.display())]);
        docker
    }

    fn cgroup_of(&self, id: &str) -> String {
        format!("{}/{id}", self.cgroup)
    }

    fn run_arguments(&self) -> Vec<String> {
        Vec::new()
    }
}
