//! `plimsoll up` with everything it runs, tenants in it, and the questions whether all is well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::{poll, proc};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::class::{Shot, Tenant};
use crate::admin;
use crate::client::{Request, Server};
use crate::embedded;
use crate::process::{Process, Scratch, free_address};

pub const NAMESPACE: &str = "tenants";
const PATIENCE: Duration = Duration::from_secs(90);
/// What only ever counts faults of ours.
const COUNTED: [&str; 3] = [
    "plimsoll_role_restarts_total",
    "plimsoll_task_restarts_total",
    "plimsoll_http_panics_total",
];
/// Who is refused before the body has been read may lose the answer with the connection.
const LONG: usize = 64 * 1024;

pub struct Victim {
    pub server: Server,
    program: PathBuf,
    address: String,
    tokens: BTreeMap<&'static str, String>,
    process: Process,
    scratch: Scratch,
}

impl Victim {
    pub fn start(program: &Path) -> Result<Self> {
        let mut scratch = Scratch::make()?;
        let address = free_address()?.to_string();
        let (process, server) = up(program, &mut scratch, &address)?;
        let mut victim = Self {
            server,
            program: program.to_owned(),
            address,
            tokens: BTreeMap::new(),
            process,
            scratch,
        };
        victim.let_tenants_in()?;
        victim.roles_work()?;
        Ok(victim)
    }

    fn let_tenants_in(&mut self) -> Result<()> {
        let server = &self.server;
        admin::create(
            server,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": NAMESPACE}}),
        )?;
        let in_namespace = format!("/api/v1/namespaces/{NAMESPACE}");
        for tenant in [Tenant::Editor, Tenant::Admin, Tenant::Nobody] {
            let name = tenant.name();
            let accounts = format!("{in_namespace}/serviceaccounts");
            admin::create(server, &accounts, &json!({"metadata": {"name": name}}))?;
            if let Some(role) = tenant.role() {
                bind(server, NAMESPACE, name, role)?;
            }
            let token = token_of(server, NAMESPACE, name)?;
            self.tokens.insert(name, token);
        }
        Ok(())
    }

    pub fn token(&self, tenant: Tenant) -> &str {
        self.tokens.get(tenant.name()).map_or("", String::as_str)
    }

    /// The request as its tenant sends it.
    pub fn request(&self, shot: &Shot) -> Request {
        let bearer = format!("Bearer {}", self.token(shot.tenant));
        let mut headers = vec![("Authorization".to_owned(), bearer)];
        if !shot.media.is_empty() {
            headers.push(("Content-Type".to_owned(), shot.media.to_owned()));
        }
        headers.extend(shot.headers.iter().cloned());
        Request {
            method: shot.method.to_owned(),
            path: shot.path.replace("$ns", NAMESPACE),
            headers,
            body: (!shot.body.is_empty()).then(|| shot.body.clone()),
        }
    }

    /// Sends it. Whatever it is, it has to be answered, and not by an excuse.
    pub fn take(&self, shot: &Shot) -> Result<u16> {
        let exchange = match self.server.send(&self.request(shot)) {
            Ok(exchange) => exchange,
            Err(_) if shot.body.len() > LONG => return Ok(413),
            Err(error) => return Err(error),
        };
        let status = exchange.status;
        let kind = exchange
            .header("content-type")
            .unwrap_or_default()
            .to_owned();
        let body = exchange.body()?;
        let shown: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        ensure!(status < 600, "answered {status}: {shown}");
        if kind.starts_with("application/json") && !body.is_empty() {
            let answer: Value = serde_json::from_slice(&body)
                .with_context(|| format!("answered {status} with what is not JSON: {shown}"))?;
            ensure!(
                answer.is_object() || shot.method == "GET",
                "answered {status}: {shown}"
            );
        }
        Ok(status)
    }

    pub fn rss_kib(&self) -> Result<u64> {
        proc::rss_kib(self.process.id())
    }

    /// The most memory since [`Victim::forget_peak`].
    pub fn peak_kib(&self) -> Result<u64> {
        proc::status_kib(self.process.id(), "VmHWM")
    }

    pub fn forget_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.process.id());
        std::fs::write(&path, "5").with_context(|| format!("write {path}"))
    }

    pub fn last_words(&self) -> String {
        self.process.last_words()
    }

    pub fn lives(&mut self) -> Result<()> {
        if let Some(status) = self.process.has_ended()? {
            bail!("plimsoll up ended with {status}");
        }
        let log = self.process.log()?;
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            bail!("it panicked: {line}");
        }
        Ok(())
    }

    /// The scheduler places a pod, the metrics server knows the nodes, and nothing had to be started again.
    pub fn roles_work(&self) -> Result<()> {
        let page = self.text("/metrics")?;
        let page = Exposition::parse(&page)?;
        for up in page.all("plimsoll_role_up", &[]) {
            ensure!(up.value == 1.0, "{} is down", up.label("role"));
        }
        for counter in COUNTED {
            let times = page.sum(counter, &[]).unwrap_or_default();
            ensure!(times == 0.0, "{counter} is {times}");
        }
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        admin::create_retrying(&self.server, pods, &pod)?;
        let probe = format!("{pods}/probe");
        poll::until("the administrator's pod is bound", PATIENCE, || {
            let pod = admin::get(&self.server, &probe)?;
            Ok(pod["spec"]["nodeName"].is_string().then_some(()))
        })?;
        let at_once = json!({"gracePeriodSeconds": 0});
        admin::send(&self.server, "DELETE", &probe, "application/json", &at_once)?;
        poll::until("the metrics server knows the nodes", PATIENCE, || {
            let nodes = admin::get(&self.server, "/apis/metrics.k8s.io/v1beta1/nodes")?;
            Ok(nodes["items"]
                .as_array()
                .is_some_and(|items| !items.is_empty())
                .then_some(()))
        })
    }

    fn text(&self, path: &str) -> Result<String> {
        let request = Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: vec![(
                "Authorization".to_owned(),
                format!("Bearer {}", self.server.admin_token),
            )],
            body: None,
        };
        Ok(String::from_utf8(self.server.send(&request)?.body()?)?)
    }

    /// Kills it and starts it again: whatever it had acknowledged is still there.
    pub fn restart_loses_nothing(&mut self) -> Result<()> {
        let before = self.kept()?;
        self.process.signal(Signal::KILL);
        self.process.ended(PATIENCE)?;
        let (process, server) = up(&self.program, &mut self.scratch, &self.address)
            .context("it does not start with what tenants have stored")?;
        self.process = process;
        self.server = server;
        let after = self.kept()?;
        for (name, object) in &before {
            let found = after.get(name);
            let found = found.with_context(|| format!("{name} is gone after a restart"))?;
            ensure!(
                found["metadata"]["uid"] == object["metadata"]["uid"],
                "{name} is another one after a restart"
            );
            for part in ["data", "binaryData", "stringData"] {
                ensure!(found[part] == object[part], "{part} of {name} changed");
            }
        }
        Ok(())
    }

    /// What tenants have stored and nobody may take away.
    fn kept(&self) -> Result<BTreeMap<String, Value>> {
        let mut kept = BTreeMap::new();
        for collection in self.collections()? {
            let list = admin::get(&self.server, &collection)?;
            for object in list["items"].as_array().into_iter().flatten() {
                let metadata = &object["metadata"];
                let may_go = collection.ends_with("/events")
                    || !metadata["ownerReferences"].is_null()
                    || !metadata["deletionTimestamp"].is_null();
                let name = metadata["name"].as_str();
                if let (Some(name), false) = (name, may_go) {
                    kept.insert(format!("{collection}/{name}"), object.clone());
                }
            }
        }
        Ok(kept)
    }

    /// Removes what tenants have stored, so that the next class meets what the first met.
    pub fn clean(&self) -> Result<()> {
        const STAY: &str = "fieldSelector=metadata.name!=editor,metadata.name!=admin,\
            metadata.name!=nobody,metadata.name!=default,metadata.name!=kube-root-ca.crt";
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        for collection in self.collections()? {
            poll::until(&format!("{collection} is empty"), PATIENCE, || {
                let path = format!("{collection}?{STAY}");
                let media = "application/json";
                let (status, answer) = admin::send(&self.server, "DELETE", &path, media, &at_once)?;
                ensure!(status == 200, "DELETE {path}: {status} {answer}");
                let list = admin::get(&self.server, &path)?;
                let items = list["items"].as_array().cloned().unwrap_or_default();
                for item in &items {
                    // Nobody else takes a tenant's finalizers away.
                    if item["metadata"]["finalizers"].is_array() {
                        let name = item["metadata"]["name"].as_str().unwrap_or_default();
                        let none = json!({"metadata": {"finalizers": null}});
                        admin::patch(&self.server, &format!("{collection}/{name}"), &none)?;
                    }
                }
                Ok(items.is_empty().then_some(()))
            })?;
        }
        Ok(())
    }

    /// Paths of everything that can be listed and deleted in the tenants' namespace.
    fn collections(&self) -> Result<Vec<String>> {
        let mut groups = vec!["/api/v1".to_owned()];
        let known = admin::get(&self.server, "/apis")?;
        for group in known["groups"].as_array().into_iter().flatten() {
            let version = group["preferredVersion"]["groupVersion"].as_str();
            // Of others' servers.
            if let Some(version) = version.filter(|version| !version.starts_with("metrics.k8s.io"))
            {
                groups.push(format!("/apis/{version}"));
            }
        }
        let mut collections = Vec::new();
        for group in groups {
            let resources = admin::get(&self.server, &group)?;
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let verbs = resource["verbs"].as_array();
                let can = |verb: &str| verbs.is_some_and(|all| all.iter().any(|one| one == verb));
                let name = resource["name"].as_str().unwrap_or_default();
                if resource["namespaced"] == true && can("list") && can("deletecollection") {
                    collections.push(format!("{group}/namespaces/{NAMESPACE}/{name}"));
                }
            }
        }
        ensure!(
            collections.len() > 20,
            "discovery names {collections:?} only"
        );
        Ok(collections)
    }
}

fn up(program: &Path, scratch: &mut Scratch, address: &str) -> Result<(Process, Server)> {
    let data = scratch.path().join("data");
    embedded::up(program, scratch, &data, address, &["--simulate-nodes", "3"])
}

/// Gives a service account a ClusterRole in its namespace.
pub fn bind(server: &Server, namespace: &str, account: &str, role: &str) -> Result<()> {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let binding = json!({
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    admin::create(server, &path, &binding)
}

pub fn token_of(server: &Server, namespace: &str, account: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let (status, answer) = admin::send(
        server,
        "POST",
        &path,
        "application/json",
        &json!({"spec": {}}),
    )?;
    let token = answer["status"]["token"].as_str();
    Ok(token
        .with_context(|| format!("a token of {account}: {status} {answer}"))?
        .to_owned())
}

impl Tenant {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Editor => "editor",
            Self::Admin => "admin",
            Self::Nobody => "nobody",
        }
    }

    const fn role(self) -> Option<&'static str> {
        match self {
            Self::Editor => Some("edit"),
            Self::Admin => Some("admin"),
            Self::Nobody => None,
        }
    }
}
