//! The two clusters, told and asked the same.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use crate::client::{Request, Server};
use crate::process::{Process, Scratch};

/// For what controllers do, and for a real server's caches.
const PATIENCE: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const REFEREE: &str = "referee";

/// The real server's controllers that have a part in authorization.
#[derive(Debug)]
pub struct Managed {
    _process: Process,
    _scratch: Scratch,
}

impl Managed {
    pub fn start(program: &Path, server: &Server) -> Result<Self> {
        let mut scratch = Scratch::make()?;
        let kubeconfig = scratch.path().join("kubeconfig");
        let config = server.kubeconfig(server.address, "default").to_string();
        fs::write(&kubeconfig, config)?;
        let mut command = janitor::command_in(None, program);
        command.arg("--kubeconfig").arg(&kubeconfig).args([
            "--controllers=clusterrole-aggregation-controller,namespace-controller,garbage-collector-controller",
            "--leader-elect=false",
            "--secure-port=0",
        ]);
        let log = scratch.path().join("controller-manager.log");
        let process = Process::start("kube-controller-manager", command, &log)?;
        scratch.process(&process)?;
        Ok(Self {
            _process: process,
            _scratch: scratch,
        })
    }
}

/// Who asks.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, String)>,
}

impl Identity {
    /// Headers by which somebody acts as this one.
    fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![("Impersonate-User".to_owned(), self.user.clone())];
        if !self.uid.is_empty() {
            headers.push(("Impersonate-Uid".to_owned(), self.uid.clone()));
        }
        for group in &self.groups {
            headers.push(("Impersonate-Group".to_owned(), group.clone()));
        }
        for (key, value) in &self.extra {
            headers.push((format!("Impersonate-Extra-{key}"), value.clone()));
        }
        headers
    }
}

/// A request that both get.
#[derive(Debug, Clone)]
pub struct Question {
    /// `METHOD PATH`; `APPLY` is a patch of that kind.
    pub what: String,
    pub body: Value,
    /// The administrator, where nobody else is named.
    pub who: Option<Identity>,
    /// A token in the place of the administrator's.
    pub token: Option<String>,
}

impl Question {
    pub fn of_admin(what: &str, body: Value) -> Self {
        Self {
            what: what.to_owned(),
            body,
            who: None,
            token: None,
        }
    }
}

#[derive(Debug)]
pub struct Side<'a> {
    pub name: &'static str,
    server: &'a Server,
}

impl Side<'_> {
    pub fn ask(&self, question: &Question) -> Result<(u16, Value)> {
        let (method, path) = question.what.split_once(' ').context("METHOD PATH")?;
        let (method, media) = match method {
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "PATCH" => ("PATCH", "application/merge-patch+json"),
            method => (method, "application/json"),
        };
        let token = question.token.as_ref().unwrap_or(&self.server.admin_token);
        let mut headers = vec![
            ("Authorization".to_owned(), format!("Bearer {token}")),
            ("Content-Type".to_owned(), media.to_owned()),
        ];
        headers.extend(question.who.iter().flat_map(Identity::headers));
        let body = &question.body;
        let exchange = self.server.send(&Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body: (!body.is_null()).then(|| body.to_string().into_bytes()),
        })?;
        let status = exchange.status;
        let answer = exchange.body()?;
        Ok((status, serde_json::from_slice(&answer).unwrap_or_default()))
    }

    /// Of the administrator.
    fn send(&self, what: &str, body: Value) -> Result<(u16, Value)> {
        self.ask(&Question::of_admin(what, body))
    }

    pub fn get(&self, path: &str) -> Result<Option<Value>> {
        let (status, answer) = self.send(&format!("GET {path}"), Value::Null)?;
        Ok((status == 200).then_some(answer))
    }

    pub fn until_gone(&self, path: &str) -> Result<()> {
        poll::until(
            &format!("{path} is gone from {}", self.name),
            PATIENCE,
            || Ok(self.get(path)?.is_none().then_some(())),
        )
    }

    /// Creates an object that belongs to another, if that is there.
    pub fn create_owned(&self, collection: &str, object: &Value, owner: &str) -> Result<u16> {
        let mut object = object.clone();
        if let Some(owner) = self.get(owner)? {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"],
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }]);
        }
        Ok(self.send(&format!("POST {collection}"), object)?.0)
    }

    /// A token of a service account.
    pub fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let (status, answer) = self.send(&format!("POST {path}"), json!({}))?;
        let token = answer["status"]["token"].as_str();
        token
            .map(str::to_owned)
            .with_context(|| format!("{}: POST {path}: {status} {answer}", self.name))
    }

    fn review(&self, user: &str, verb: &str) -> Result<bool> {
        let asked =
            json!({"verb": verb, "group": REFEREE, "resource": "whistles", "namespace": "default"});
        let review = json!({"spec": {"user": user, "resourceAttributes": asked}});
        let (status, answer) = self.send(&format!("POST {REVIEWS}"), review)?;
        ensure!(status == 201, "{}: {status} {answer}", self.name);
        Ok(answer["status"]["allowed"] == true)
    }
}

#[derive(Debug)]
pub struct Pair<'a> {
    pub real: Side<'a>,
    pub ours: Side<'a>,
}

impl<'a> Pair<'a> {
    pub fn new(real: &'a Server, ours: &'a Server) -> Self {
        Self {
            real: Side {
                name: "real",
                server: real,
            },
            ours: Side {
                name: "ours",
                server: ours,
            },
        }
    }

    pub fn sides(&self) -> [&Side<'a>; 2] {
        [&self.ours, &self.real]
    }

    /// Waits until the real server's authorizer has seen everything that was written so far: it follows each of the
    /// four kinds in its order, so whoever sees the last write of each has seen all others.
    pub fn settle(&self, round: u64) -> Result<()> {
        let verb = format!("v{round}");
        let rules =
            json!([{"apiGroups": [REFEREE], "resources": ["whistles"], "verbs": [verb, "always"]}]);
        let role = json!({"metadata": {"name": REFEREE}, "rules": rules});
        let binding = |kind: &str, users: &[&str]| {
            let subjects: Vec<Value> = users
                .iter()
                .map(|user| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}))
                .collect();
            json!({
                "metadata": {"name": REFEREE},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": REFEREE},
                "subjects": subjects,
            })
        };
        // Two are of the whole cluster and two of a namespace; each pair has a user who stays.
        let of_cluster = format!("whole-{round}");
        let of_namespace = format!("part-{round}");
        let namespaced = format!("{RBAC}/namespaces/default");
        for (path, object) in [
            (format!("{RBAC}/clusterroles"), role.clone()),
            (format!("{namespaced}/roles"), role),
            (
                format!("{RBAC}/clusterrolebindings"),
                binding("ClusterRole", &["whole", &of_cluster]),
            ),
            (
                format!("{namespaced}/rolebindings"),
                binding("Role", &["part", &of_namespace]),
            ),
        ] {
            let what = format!("PUT {path}/{REFEREE}");
            let (status, answer) = self.real.send(&what, object)?;
            ensure!(matches!(status, 200 | 201), "{what}: {status} {answer}");
        }
        for (user, verb) in [
            ("whole", verb.as_str()),
            ("part", &verb),
            (&of_cluster, "always"),
            (&of_namespace, "always"),
        ] {
            poll::until(&format!("{user} may {verb}"), PATIENCE, || {
                Ok(self.real.review(user, verb)?.then_some(()))
            })?;
        }
        Ok(())
    }

    /// Waits until both have written down the same rules, which may be none.
    pub fn until_rules_agree(&self, role: &str) -> Result<()> {
        let path = format!("{RBAC}/clusterroles/{role}");
        let mut seen = Vec::new();
        let rules = |side: &Side<'_>| -> Result<Option<Value>> {
            let role = side.get(&path)?;
            Ok(role.map(|role| match &role["rules"] {
                Value::Null => json!([]),
                rules => rules.clone(),
            }))
        };
        let agreed = poll::until(&format!("the rules of {role} agree"), PATIENCE, || {
            seen = vec![rules(&self.ours)?, rules(&self.real)?];
            Ok((seen[0] == seen[1]).then_some(()))
        });
        agreed.with_context(|| format!("ours and real: {seen:?}"))
    }
}
