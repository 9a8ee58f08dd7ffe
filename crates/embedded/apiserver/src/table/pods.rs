//! What a pod's row says.

use jiff::Timestamp;
use plimsoll_golang::human_duration;
use serde_json::{Value, json};

use super::view::View;

pub fn row(pod: View<'_>) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = match state.last_restart {
        Some(last) if state.restarts != 0 => {
            format!(
                "{} ({} ago)",
                state.restarts,
                human_duration::between(last, pod.now)
            )
        }
        _ => state.restarts.to_string(),
    };
    vec![
        pod.name().into(),
        format!("{}/{}", state.ready, state.containers).into(),
        state.reason.into(),
        restarts.into(),
        pod.age().into(),
        pod.text_or("/status/podIPs/0/ip", "<none>").into(),
        pod.text_or("/spec/nodeName", "<none>").into(),
        pod.text_or("/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// Marks rows of pods that will not run any more, so that clients can leave them out.
pub fn row_conditions(pod: &Value) -> Option<Value> {
    let phase = pod.pointer("/status/phase")?.as_str()?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.count("/spec/readinessGates");
    if gates == 0 {
        return "<none>".to_owned();
    }
    let passed = pod
        .list("/spec/readinessGates")
        .filter(|gate| {
            pod.condition("/status/conditions", gate.text("/conditionType"))
                .is_some_and(|found| found.text("/status") == "True")
        })
        .count();
    format!("{passed}/{gates}")
}

struct State {
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl State {
    fn of(pod: View<'_>) -> Self {
        let mut reason = match pod.text("/status/reason") {
            "" => pod.text("/status/phase"),
            reason => reason,
        }
        .to_owned();
        let gated = pod.list("/status/conditions").any(|one| {
            one.text("/type") == "PodScheduled" && one.text("/reason") == "SchedulingGated"
        });
        if gated {
            reason = "SchedulingGated".to_owned();
        }
        let sidecars: Vec<&str> = pod
            .list("/spec/initContainers")
            .filter(|one| one.text("/restartPolicy") == "Always")
            .map(|one| one.text("/name"))
            .collect();
        let mut state = Self {
            ready: 0,
            containers: pod.count("/spec/containers") + sidecars.len(),
            restarts: 0,
            last_restart: None,
            reason,
        };
        let sidecar_restarts = state.init_containers(pod, &sidecars);
        let initialized = pod
            .condition("/status/conditions", "Initialized")
            .is_some_and(|one| one.text("/status") == "True");
        match sidecar_restarts {
            Progress::Initializing(_) if !initialized => {}
            Progress::Initializing((restarts, last)) | Progress::Done((restarts, last)) => {
                state.restarts = restarts;
                state.last_restart = last;
                state.app_containers(pod);
            }
        }
        if pod.has("/metadata/deletionTimestamp") {
            if pod.text("/status/reason") == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if !matches!(pod.text("/status/phase"), "Succeeded" | "Failed") {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Init containers run one after the other: the first that has not finished tells the pod's state. Those that
    /// keep running beside the others count like ordinary ones.
    fn init_containers(&mut self, pod: View<'_>, sidecars: &[&str]) -> Progress {
        let mut of_sidecars = (0, None);
        for (index, container) in pod.list("/status/initContainerStatuses").enumerate() {
            let is_sidecar = sidecars.contains(&container.text("/name"));
            let restarts = container.int("/restartCount");
            let restarted = container.time("/lastState/terminated/finishedAt");
            self.restarts += restarts;
            self.last_restart = self.last_restart.max(restarted);
            if is_sidecar {
                of_sidecars.0 += restarts;
                of_sidecars.1 = of_sidecars.1.max(restarted);
            }
            let terminated = container.part("/state/terminated");
            if terminated.is_some_and(|one| one.int("/exitCode") == 0) {
                continue;
            }
            if is_sidecar && container.flag("/started") {
                self.ready += usize::from(container.flag("/ready"));
                continue;
            }
            let waiting = container.text("/state/waiting/reason");
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", how_it_ended(terminated)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", pod.count("/spec/initContainers")),
            };
            return Progress::Initializing(of_sidecars);
        }
        Progress::Done(of_sidecars)
    }

    fn app_containers(&mut self, pod: View<'_>) {
        let mut some_run = false;
        let mut failure = None;
        for container in pod.list("/status/containerStatuses").rev() {
            self.restarts += container.int("/restartCount");
            self.last_restart = self
                .last_restart
                .max(container.time("/lastState/terminated/finishedAt"));
            let waiting = container.text("/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = container.part("/state/terminated") {
                self.reason = how_it_ended(terminated);
                if terminated.int("/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container.flag("/ready") && container.has("/state/running") {
                some_run = true;
                self.ready += 1;
            }
        }
        // One container has completed; the others may tell more about the pod.
        if self.reason == "Completed" {
            let ready = pod
                .list("/status/conditions")
                .any(|one| one.text("/type") == "Ready" && one.text("/status") == "True");
            if some_run && ready {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if some_run {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// How far the init containers are, with the restarts of those that keep running, and the last of these.
enum Progress {
    Initializing((i64, Option<Timestamp>)),
    Done((i64, Option<Timestamp>)),
}

fn how_it_ended(terminated: View<'_>) -> String {
    match (terminated.text("/reason"), terminated.int("/signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.int("/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
