//! A real API server with a real kube-scheduler, for one scenario after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use plimsoll_sched::sandbox::ObjectKey;
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use super::kinds::{Kind, short_key};
use super::profiles::whole;
use super::replay::{operation_key, with_uids};
use super::scenario::{Operation, Scenario, Setup};
use super::seen::{self, Scores, Seen, Uids};
use super::stored::{clean, difference, has_status_of_its_own, merge};
use crate::certificates::Authority;
use crate::client::{Request, Server};
use crate::process::{Process, Scratch, free_address};
use crate::real::RealCluster;

/// A server that knows what scenarios are about, and adds nothing to pods that they do not say.
const API_FLAGS: &[&str] = &[
    "--disable-admission-plugins=DefaultTolerationSeconds,StorageObjectInUseProtection",
    "--feature-gates=GenericWorkload=true,GangScheduling=true,DRADeviceTaintRules=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true",
];

/// Nothing has happened for so long: it is over.
const QUIET: Duration = Duration::from_millis(400);
/// The same between two objects of a step.
const SHORTLY_QUIET: Duration = Duration::from_millis(150);
const ADMITTED: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Rig {
    cluster: RealCluster,
    programs: PathBuf,
    /// The plimsoll binary, if it is to take the original's place.
    ours: Option<PathBuf>,
    scheduler: Option<Scheduler>,
    classes: BTreeSet<String>,
}

#[derive(Debug)]
struct Scheduler {
    setup: Setup,
    server: Server,
    log: PathBuf,
    _process: Process,
    _scratch: Scratch,
}

impl Rig {
    /// With the original, or with `plimsoll scheduler` of this binary.
    pub fn start(programs: &Path, ours: Option<&Path>) -> Result<Self> {
        Ok(Self {
            ours: ours.map(Path::to_owned),
            cluster: RealCluster::start_with(programs, API_FLAGS)?,
            programs: programs.to_owned(),
            scheduler: None,
            classes: BTreeSet::new(),
        })
    }

    /// Plays a scenario and leaves nothing of it behind.
    pub fn play(&mut self, scenario: &Scenario) -> Result<Vec<Seen>> {
        if self
            .scheduler
            .as_ref()
            .is_none_or(|known| known.setup != scenario.setup)
        {
            self.scheduler = None;
            self.scheduler = Some(self.start_scheduler(&scenario.setup)?);
        }
        let mut run = Run {
            rig: self,
            uids: Uids::default(),
            made: Vec::new(),
            events: BTreeSet::new(),
            log_read: 0,
        };
        run.log_read = run.log_length()?;
        let played = run.all(scenario);
        let in_flight = run.is_in_flight();
        let cleaned = run.clean_up();
        if cleaned.is_err() || !matches!(in_flight, Ok(false)) {
            // The next scenario starts with a scheduler that knows nothing of this one.
            self.scheduler = None;
        }
        let played = played?;
        cleaned?;
        Ok(played)
    }

    fn start_scheduler(&self, setup: &Setup) -> Result<Scheduler> {
        let mut scratch = Scratch::make()?;
        let folder = scratch.path().to_owned();
        let authority = Authority::make(&folder, "authority")?;
        let serving = authority.server("scheduler")?;
        let kubeconfig = folder.join("kubeconfig");
        let api = &self.cluster.server;
        fs::write(
            &kubeconfig,
            api.kubeconfig(api.address, "default").to_string(),
        )?;
        let mut config = whole(setup)?;
        config["clientConnection"] = json!({"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000});
        let config_file = folder.join("config.yaml");
        fs::write(&config_file, config.to_string())?;
        let address = free_address()?;
        let mut command = match &self.ours {
            None => janitor::command_in(None, self.programs.join("kube-scheduler")),
            Some(program) => {
                let mut command = janitor::command_in(None, program);
                command.arg("scheduler");
                command
            }
        };
        command.arg("--config").arg(&config_file);
        command.args(["--bind-address", &address.ip().to_string()]);
        command.args(["--secure-port", &address.port().to_string()]);
        command.arg("--tls-cert-file").arg(&serving.certificate);
        command.arg("--tls-private-key-file").arg(&serving.key);
        command.arg("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics");
        command.arg("--vmodule=schedule_one=10");
        let gates: Vec<String> = setup
            .gates
            .iter()
            .map(|(name, on)| format!("{name}={on}"))
            .collect();
        if !gates.is_empty() {
            command.arg(format!("--feature-gates={}", gates.join(",")));
        }
        let log = folder.join("scheduler.log");
        let mut process = Process::start("kube-scheduler", command, &log)?;
        scratch.process(&process)?;
        let authorities = fs::read(authority.certificate())?;
        let server = Server::new(&format!("https://{address}"), &authorities, "")?;
        process.wait("the scheduler is ready", || {
            let exchange = server.send(&request("GET", "/readyz", None, None))?;
            Ok((exchange.status == 200).then_some(()))
        })?;
        Ok(Scheduler {
            setup: setup.clone(),
            server,
            log,
            _process: process,
            _scratch: scratch,
        })
    }
}

fn request(method: &str, path: &str, body: Option<&Value>, token: Option<&str>) -> Request {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut headers = vec![("Content-Type".to_owned(), kind.to_owned())];
    if let Some(token) = token {
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body: body.map(|body| body.to_string().into_bytes()),
    }
}

/// Figures that show whether the scheduler is at work.
#[derive(Debug, Clone, Default, PartialEq)]
struct Figures {
    active: u64,
    pending: u64,
    attempts: BTreeMap<String, u64>,
}

struct Run<'a> {
    rig: &'a mut Rig,
    uids: Uids,
    /// In the order in which they were made.
    made: Vec<ObjectKey>,
    events: BTreeSet<String>,
    log_read: usize,
}

impl Run<'_> {
    fn all(&mut self, scenario: &Scenario) -> Result<Vec<Seen>> {
        let setup: Vec<Operation> = scenario
            .objects
            .iter()
            .cloned()
            .map(Operation::Create)
            .collect();
        let mut steps = Vec::new();
        for (index, step) in std::iter::once(&setup).chain(&scenario.steps).enumerate() {
            steps.push(self.step(step).with_context(|| format!("step {index}"))?);
        }
        Ok(steps)
    }

    fn step(&mut self, step: &[Operation]) -> Result<Seen> {
        let before = self.figures()?;
        let mut stored = BTreeMap::new();
        let mut unsettled = false;
        for (index, operation) in step.iter().enumerate() {
            // Every informer is to have seen what came before a pod.
            let is_pending = matches!(operation, Operation::Create(object)
                if object["kind"] == "Pod" && object["spec"]["nodeName"].is_null());
            if is_pending && unsettled {
                self.settle(SHORTLY_QUIET)?;
            }
            unsettled = true;
            if let Some((key, change)) = self.operate(operation)? {
                stored.insert(operation_key(index, &key), change);
            }
            if is_pending {
                self.settle(SHORTLY_QUIET)?;
            }
        }
        self.settle(QUIET)?;
        let mut seen = self.look()?;
        seen.stored = stored;
        let after = self.figures()?;
        for (word, count) in after.attempts {
            let new = count - before.attempts.get(&word).copied().unwrap_or(0);
            if new > 0 {
                let new = if word == "error" {
                    1
                } else {
                    new.min(seen::ENDLESS)
                };
                seen.attempts.insert(word, new);
            }
        }
        Ok(seen)
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let server = &self.rig.cluster.server;
        let exchange = server.send(&request(method, path, body, Some(&server.admin_token)))?;
        let status = exchange.status;
        let body = exchange.body()?;
        let value =
            serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
        Ok((status, value))
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, answer) = self.call(method, path, body)?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        Ok(answer)
    }

    /// Does it, and says what the server made of it.
    fn operate(&mut self, operation: &Operation) -> Result<Option<(ObjectKey, Value)>> {
        match operation {
            Operation::Pause(time) => {
                std::thread::sleep(*time);
                Ok(None)
            }
            Operation::Create(object) => self.create(object),
            Operation::Patch {
                key,
                subresource,
                patch,
            } => {
                let kind = Kind::by_name(&key.kind)?;
                let path = kind.path(key);
                let before = clean(&self.ask("GET", &path, None)?);
                let patch = with_uids(patch, &self.uids);
                let target = match subresource {
                    Some(subresource) => format!("{path}/{subresource}"),
                    None => path,
                };
                let after = clean(&self.ask("PATCH", &target, Some(&patch))?);
                let mut expected = before;
                merge(&mut expected, &patch);
                let change = difference(&clean(&expected), &after);
                Ok(change.map(|change| (key.clone(), change)))
            }
            Operation::Delete { key, grace, maybe } => {
                let path = Kind::by_name(&key.kind)?.path(key);
                let body = json!({"gracePeriodSeconds": grace});
                let (status, answer) = self.call("DELETE", &path, Some(&body))?;
                ensure!(
                    (200..300).contains(&status) || (*maybe && status == 404),
                    "DELETE {path}: {status} {answer}"
                );
                Ok(None)
            }
        }
    }

    fn create(&mut self, object: &Value) -> Result<Option<(ObjectKey, Value)>> {
        let key = ObjectKey::of(object).context("an object without a name")?;
        let kind = Kind::by_name(&key.kind)?;
        let object = with_uids(object, &self.uids);
        if let Some(class) = object
            .pointer("/spec/priorityClassName")
            .and_then(Value::as_str)
        {
            self.priority_class(class)?;
        }
        // A class of priorities that has just been made may not be known to admission yet.
        let mut answer = poll::until("the object is admitted", ADMITTED, || {
            let answer = self.call("POST", &kind.collection(&key.namespace), Some(&object))?;
            match answer {
                (200..300, answer) => Ok(Some(Ok(answer))),
                (403, answer) if answer.to_string().contains("no PriorityClass") => Ok(None),
                (status, answer) => {
                    Ok(Some(Err(anyhow!("{}: {status} {answer}", short_key(&key)))))
                }
            }
        })??;
        self.made.push(key.clone());
        let uid = answer.pointer("/metadata/uid").and_then(Value::as_str);
        self.uids.insert(uid.unwrap_or_default(), &key);
        let status = &object["status"];
        if has_status_of_its_own(&object) {
            let path = format!("{}/status", kind.path(&key));
            answer = self.ask("PATCH", &path, Some(&json!({"status": status})))?;
        }
        let change = difference(&clean(&object), &clean(&answer));
        Ok(change.map(|change| (key, change)))
    }

    /// Classes stay: no scheduler looks at them.
    fn priority_class(&mut self, name: &str) -> Result<()> {
        let mut class = json!({"metadata": {"name": name}});
        let Some((word, number)) = name.split_once('-') else {
            return Ok(());
        };
        // Others are the server's own.
        let Ok(number) = number.parse::<i64>() else {
            return Ok(());
        };
        class["value"] = json!(if word == "minus" { -number } else { number });
        if word == "never" {
            class["preemptionPolicy"] = json!("Never");
        }
        if self.rig.classes.insert(name.to_owned()) {
            self.ask(
                "POST",
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                Some(&class),
            )?;
        }
        Ok(())
    }

    fn scheduler(&self) -> Result<&Scheduler> {
        self.rig.scheduler.as_ref().context("no scheduler runs")
    }

    fn figures(&self) -> Result<Figures> {
        let exchange = self
            .scheduler()?
            .server
            .send(&request("GET", "/metrics", None, None))?;
        ensure!(exchange.status == 200, "metrics: {}", exchange.status);
        let text = String::from_utf8(exchange.body()?)?;
        let mut figures = Figures::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let number = || value.parse::<f64>().map(|number| number as u64);
            if let Some(labels) = series.strip_prefix("scheduler_pending_pods{") {
                figures.pending += number()?;
                if labels.contains("\"active\"") {
                    figures.active = number()?;
                }
            }
            if let Some(labels) = series.strip_prefix("scheduler_schedule_attempts_total{") {
                let result = labels.split("result=\"").nth(1);
                let result = result.and_then(|rest| rest.split('"').next());
                let result = result.context("attempts without a result")?;
                *figures.attempts.entry(result.to_owned()).or_default() += number()?;
            }
        }
        Ok(figures)
    }

    /// Waits until nothing has changed for a while, and nobody is about to be scheduled.
    fn settle(&self, quiet: Duration) -> Result<()> {
        let started = Instant::now();
        let mut last = None;
        let mut since = Instant::now();
        poll::until("the scheduler comes to rest", PATIENCE, || {
            let figures = self.figures()?;
            // Errors are tried again for ever; they are not to be waited for.
            let mut calm = figures.clone();
            calm.attempts.remove("error");
            let now = (calm, self.versions()?);
            if last.as_ref() != Some(&now) {
                since = Instant::now();
                last = Some(now);
            }
            let rested = since.elapsed() >= quiet && figures.active == 0;
            Ok((rested || started.elapsed() > PATIENCE / 2).then_some(()))
        })
    }

    /// Of everything that schedulers write.
    fn versions(&self) -> Result<Vec<String>> {
        let mut versions = Vec::new();
        for path in ["/api/v1/pods", "/apis/events.k8s.io/v1/events"] {
            let list = self.ask("GET", path, None)?;
            for item in list["items"].as_array().into_iter().flatten() {
                versions.push(item["metadata"]["resourceVersion"].to_string());
            }
        }
        Ok(versions)
    }

    fn look(&mut self) -> Result<Seen> {
        let mut seen = Seen::default();
        for name in [
            "Pod",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "ResourceClaim",
            "PodGroup",
        ] {
            let kind = Kind::by_name(name)?;
            let list = self.ask("GET", &kind.collection(""), None)?;
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = json!(name);
                let key = ObjectKey::of(&item).context("an object without a name")?;
                if let Some(digest) = seen::digest(&key, &item, &self.uids) {
                    seen.objects.insert(seen::title(&key, &item), digest);
                }
            }
        }
        let list = self.ask("GET", "/apis/events.k8s.io/v1/events", None)?;
        for item in list["items"].as_array().into_iter().flatten() {
            let text = |pointer: &str| {
                item.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            // An earlier scenario may have had a pod of the same name.
            if !self.uids.has(text("/regarding/uid")) {
                continue;
            }
            let key = ObjectKey::new(
                text("/regarding/kind"),
                text("/regarding/namespace"),
                text("/regarding/name"),
            );
            let parts = [
                text("/type"),
                text("/reason"),
                text("/action"),
                text("/note"),
                text("/reportingController"),
            ];
            let line = seen::event(&key, parts, &self.uids);
            if self.events.insert(line.clone()) {
                seen.events.insert(line);
            }
        }
        seen.scores = self.scores()?;
        Ok(seen)
    }

    fn log_length(&self) -> Result<usize> {
        Ok(fs::read(&self.scheduler()?.log)?.len())
    }

    /// The totals that the scheduler has logged since it was last asked.
    fn scores(&mut self) -> Result<BTreeMap<String, Scores>> {
        let log = fs::read(&self.scheduler()?.log)?;
        let new = String::from_utf8_lossy(&log[self.log_read.min(log.len())..]).into_owned();
        self.log_read = log.len();
        let mut scores: BTreeMap<String, Scores> = BTreeMap::new();
        for line in new
            .lines()
            .filter(|line| line.contains("\"Calculated node's final score for pod\""))
        {
            let field = |name: &str| {
                let rest = line.split(&format!(" {name}=")).nth(1)?;
                let value = rest.split(' ').next()?;
                Some(value.trim_matches('"').to_owned())
            };
            if let (Some(pod), Some(node), Some(score)) =
                (field("pod"), field("node"), field("score"))
            {
                let (namespace, name) = pod.split_once('/').unwrap_or(("", &pod));
                let key = short_key(&ObjectKey::new("Pod", namespace, name));
                scores.entry(key).or_default().insert(node, score.parse()?);
            }
        }
        Ok(scores)
    }

    /// Whether some pod has got its node, but is not bound: the scheduler would go on with it.
    fn is_in_flight(&self) -> Result<bool> {
        let list = self.ask("GET", "/api/v1/pods", None)?;
        Ok(list["items"].as_array().into_iter().flatten().any(|pod| {
            let refused = pod["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "PodScheduled");
            let promised = !pod["status"]["nominatedNodeName"].is_null();
            pod["spec"]["nodeName"].is_null() && (!refused || promised)
        }))
    }

    fn clean_up(&mut self) -> Result<()> {
        let mut namespaces = BTreeSet::from(["default".to_owned()]);
        for key in self.made.iter().rev() {
            if key.kind == "Namespace" {
                namespaces.insert(key.name.clone());
                continue;
            }
            self.destroy(key)?;
        }
        for name in ["Pod", "ResourceClaim"] {
            let list = self.ask("GET", &Kind::by_name(name)?.collection(""), None)?;
            for item in list["items"].as_array().into_iter().flatten() {
                let mut item = item.clone();
                item["kind"] = json!(name);
                if let Some(key) = ObjectKey::of(&item) {
                    self.destroy(&key)?;
                }
            }
        }
        for namespace in &namespaces {
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            self.ask("DELETE", &path, None)?;
            if namespace != "default" {
                let path = format!("/api/v1/namespaces/{namespace}");
                self.call("DELETE", &path, None)?;
                let (status, mut object) = self.call("GET", &path, None)?;
                if status == 200 {
                    object["spec"] = json!({});
                    self.call("PUT", &format!("{path}/finalize"), Some(&object))?;
                }
            }
        }
        poll::until("the scheduler has forgotten the scenario", PATIENCE, || {
            Ok((self.figures()?.pending == 0).then_some(()))
        })?;
        self.settle(SHORTLY_QUIET)
    }

    /// At once, whatever holds it.
    fn destroy(&self, key: &ObjectKey) -> Result<()> {
        let path = Kind::by_name(&key.kind)?.path(key);
        let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let (status, _) = self.call("DELETE", &path, Some(&body))?;
        if status == 404 {
            return Ok(());
        }
        let (status, object) = self.call("GET", &path, None)?;
        if status == 200 && object.pointer("/metadata/finalizers").is_some() {
            self.ask(
                "PATCH",
                &path,
                Some(&json!({"metadata": {"finalizers": null}})),
            )?;
        } else if status == 200 {
            bail!("{} does not go away", short_key(key));
        }
        Ok(())
    }
}
