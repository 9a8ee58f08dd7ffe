//! What a story is made of: random rules, roles, bindings and people, and what is asked about them.

use fastrand::Rng;
use serde_json::{Value, json};

use super::sides::{Identity, Question};

pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const API_GROUP: &str = "rbac.authorization.k8s.io";
/// Labels by which roles are gathered. Who gathers by one carries only later ones, so nobody gathers in a circle.
pub const LABELS: [&str; 3] = ["cases/first", "cases/second", "cases/third"];

const VERBS: &[&str] = &[
    "get",
    "get",
    "list",
    "watch",
    "create",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "*",
    "*",
    "*",
    "escalate",
    "bind",
    "impersonate",
    "impersonate:user-info",
    "impersonate-on:user-info:get",
    "impersonate-on:user-info:create",
];
const GROUPS: &[&str] = &[
    "",
    "",
    "",
    "apps",
    API_GROUP,
    "coordination.k8s.io",
    "authentication.k8s.io",
    "*",
    "*",
];
const RESOURCES: &[&str] = &[
    "configmaps",
    "configmaps",
    "secrets",
    "pods",
    "pods/log",
    "pods/*",
    "*/log",
    "*/scale",
    "leases",
    "deployments",
    "deployments/scale",
    "roles",
    "rolebindings",
    "clusterroles",
    "users",
    "groups",
    "uids",
    "userextras/scopes",
    "serviceaccounts",
    "serviceaccounts/token",
    "*",
    "*",
    "*",
];
const URLS: &[&str] = &["/metrics", "/logs", "/logs/*", "/lo*", "/apis/*", "*", "/x"];
const NAMES: &[&str] = &["x", "y", "u0", "g0", "s0"];

pub struct Words {
    random: Rng,
    /// What belongs to no namespace begins so.
    pub prefix: String,
    pub namespaces: Vec<String>,
}

impl Words {
    pub fn new(seed: u64) -> Self {
        let prefix = format!("z{seed}");
        Self {
            random: Rng::with_seed(seed),
            namespaces: vec![format!("{prefix}-a"), format!("{prefix}-b")],
            prefix,
        }
    }

    pub fn below(&mut self, end: u8) -> u8 {
        self.random.u8(..end)
    }

    pub fn often(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())].clone()
    }

    fn some(&mut self, choices: &[&str], most: usize) -> Vec<String> {
        let count = self.random.usize(1..=most);
        (0..count).map(|_| self.of(choices).to_owned()).collect()
    }

    /// Of one that does not gather.
    pub fn cluster_role_name(&mut self) -> String {
        format!("{}-c{}", self.prefix, self.random.u8(..4))
    }

    pub fn namespace(&mut self) -> String {
        self.of(&self.namespaces.clone())
    }

    fn rules(&mut self, of_cluster: bool) -> Value {
        let rules: Vec<Value> = (0..self.random.usize(1..3))
            .map(|_| {
                if of_cluster && self.often(15) {
                    return json!({"verbs": self.some(&["get", "post", "*"], 2), "nonResourceURLs": self.some(URLS, 2)});
                }
                let mut rule = json!({
                    "verbs": self.some(VERBS, 4), "apiGroups": self.some(GROUPS, 3),
                    "resources": self.some(RESOURCES, 5),
                });
                if self.often(25) {
                    rule["resourceNames"] = json!(self.some(NAMES, 2));
                }
                rule
            })
            .collect();
        json!(rules)
    }

    pub fn role(&mut self, namespace: &str) -> (String, Value) {
        let name = format!("r{}", self.random.u8(..3));
        let role = json!({"metadata": {"name": name}, "rules": self.rules(false)});
        (format!("{RBAC}/namespaces/{namespace}/roles/{name}"), role)
    }

    pub fn cluster_role(&mut self) -> (String, Value) {
        let gathers = self.often(25);
        let number = self.random.usize(..LABELS.len() - 1);
        let name = if gathers {
            format!("{}-m{number}", self.prefix)
        } else {
            self.cluster_role_name()
        };
        let mut role = json!({"metadata": {"name": name, "labels": {}}, "rules": self.rules(true)});
        let from = if gathers { number + 1 } else { 0 };
        for label in &LABELS[from..] {
            if self.often(40) {
                role["metadata"]["labels"][*label] = self.prefix.as_str().into();
            }
        }
        if gathers {
            // What somebody else has written stays in a real one until there is something to gather.
            role["rules"] = json!([]);
            let label = LABELS[number];
            let selector = json!({"matchLabels": {label: self.prefix}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        (format!("{RBAC}/clusterroles/{name}"), role)
    }

    fn subject(&mut self, namespace: &str) -> Value {
        match self.random.u8(..4) {
            0 => json!({"apiGroup": API_GROUP, "kind": "Group", "name": self.group()}),
            1 => {
                let namespace = if self.often(70) {
                    namespace.to_owned()
                } else {
                    self.namespace()
                };
                json!({"kind": "ServiceAccount", "name": format!("s{}", self.random.u8(..2)), "namespace": namespace})
            }
            _ => json!({"apiGroup": API_GROUP, "kind": "User", "name": self.user()}),
        }
    }

    fn user(&mut self) -> String {
        // The same names in the next story would be others'.
        format!("{}-u{}", self.prefix, self.random.u8(..3))
    }

    fn group(&mut self) -> String {
        match self.random.u8(..8) {
            0 => "system:authenticated".to_owned(),
            1 => format!("system:serviceaccounts:{}", self.namespace()),
            number => format!("{}-g{}", self.prefix, number % 2),
        }
    }

    fn role_name(&mut self) -> Value {
        let (kind, name) = match self.random.u8(..8) {
            0..3 => ("Role", format!("r{}", self.random.u8(..3))),
            3 => (
                "ClusterRole",
                self.of(&["view", "edit", "admin", "system:basic-user"])
                    .to_owned(),
            ),
            4 | 5 => (
                "ClusterRole",
                format!("{}-m{}", self.prefix, self.random.usize(..LABELS.len() - 1)),
            ),
            _ => ("ClusterRole", self.cluster_role_name()),
        };
        json!({"apiGroup": API_GROUP, "kind": kind, "name": name})
    }

    pub fn binding(&mut self, namespace: &str) -> Value {
        let subjects: Vec<Value> = (0..self.random.usize(2..5))
            .map(|_| self.subject(namespace))
            .collect();
        json!({
            "metadata": {"name": format!("b{}", self.random.u8(..4))},
            "roleRef": self.role_name(), "subjects": subjects,
        })
    }

    pub fn cluster_binding(&mut self) -> Value {
        let namespace = self.namespace();
        let mut binding = self.binding(&namespace);
        binding["metadata"]["name"] = format!("{}-b{}", self.prefix, self.random.u8(..2)).into();
        if binding["roleRef"]["kind"] == "Role" {
            binding["roleRef"]["kind"] = "ClusterRole".into();
            binding["roleRef"]["name"] = format!("{}-c0", self.prefix).into();
        }
        // Everybody's rights would be everybody's in the next story.
        if let Some(subjects) = binding["subjects"].as_array_mut() {
            for subject in subjects {
                if subject["name"] == "system:authenticated" {
                    subject["name"] = format!("{}-g0", self.prefix).into();
                }
            }
        }
        binding
    }

    pub fn identity(&mut self) -> Identity {
        let account = self.often(25);
        let user = if account {
            format!(
                "system:serviceaccount:{}:s{}",
                self.namespace(),
                self.random.u8(..2)
            )
        } else {
            self.user()
        };
        let groups = match account {
            true => 0,
            false => self.random.usize(..3),
        };
        Identity {
            user,
            uid: if self.often(10) {
                "uid".to_owned()
            } else {
                String::new()
            },
            groups: (0..groups).map(|_| self.group()).collect(),
            extra: match self.often(10) {
                true => vec![("scopes".to_owned(), "x".to_owned())],
                false => Vec::new(),
            },
        }
    }

    /// An attempt to give something away, which changes nothing.
    fn grant(&mut self, namespace: &str) -> (String, Value) {
        let roles = format!("{RBAC}/namespaces/{namespace}/roles");
        match self.random.u8(..6) {
            0 => {
                let (path, mut role) = self.role(namespace);
                role["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
                role["kind"] = "Role".into();
                (
                    format!("APPLY {path}?fieldManager=m&force=true&dryRun=All"),
                    role,
                )
            }
            1 => {
                let (path, role) = self.role(namespace);
                (format!("PUT {path}?dryRun=All"), role)
            }
            2 => {
                let (path, role) = self.cluster_role();
                (format!("PUT {path}?dryRun=All"), role)
            }
            3 => (
                format!("POST {RBAC}/clusterrolebindings?dryRun=All"),
                self.cluster_binding(),
            ),
            4 => {
                let mut role = self.role(namespace).1;
                role["metadata"]["name"] = "fresh".into();
                (format!("POST {roles}?dryRun=All"), role)
            }
            _ => {
                let binding = self.binding(namespace);
                (
                    format!("POST {RBAC}/namespaces/{namespace}/rolebindings?dryRun=All"),
                    binding,
                )
            }
        }
    }

    fn request(&mut self, namespace: &str) -> (String, Value) {
        let api = format!("/api/v1/namespaces/{namespace}");
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let name = self.of(&["x", "y"]);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        let nothing = Value::Null;
        match self.random.u8(..16) {
            0 => (format!("GET {api}/configmaps/{name}"), nothing),
            1 => (format!("GET {api}/secrets"), nothing),
            2 => (format!("GET {api}/secrets/{name}"), nothing),
            3 => (format!("GET {api}/pods/{name}/log"), nothing),
            4 => (
                format!("GET {api}/configmaps?fieldSelector=metadata.name={name}"),
                nothing,
            ),
            5 => (
                format!("DELETE {api}/configmaps/{name}?dryRun=All"),
                nothing,
            ),
            6 => (format!("DELETE {api}/configmaps?dryRun=All"), nothing),
            7 => (
                format!("APPLY {api}/configmaps/{name}?fieldManager=m&dryRun=All"),
                map,
            ),
            8 => (format!("POST {api}/configmaps?dryRun=All"), map),
            9 => (format!("PUT {leases}/{name}?dryRun=All"), lease),
            10 => (
                format!("APPLY {leases}/{name}?fieldManager=m&dryRun=All"),
                lease,
            ),
            11 => (
                format!("GET /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"),
                nothing,
            ),
            12 => (
                format!("GET /api/v1/configmaps?limit=1&fieldSelector=metadata.name={name}"),
                nothing,
            ),
            13 => (
                format!("PATCH {api}/configmaps/{name}?dryRun=All"),
                json!({"data": {"a": "b"}}),
            ),
            14 => (
                format!("POST {api}/serviceaccounts/{name}/token"),
                json!({}),
            ),
            _ => (
                format!("GET {}", self.of(&["/x", "/logs/a", "/apis/a"])),
                nothing,
            ),
        }
    }

    pub fn question(&mut self) -> Question {
        if self.often(45) {
            return self.review();
        }
        let who = Some(self.identity());
        let namespace = self.namespace();
        let (what, body) = if self.often(40) {
            self.grant(&namespace)
        } else {
            self.request(&namespace)
        };
        Question {
            what,
            body,
            who,
            token: None,
        }
    }

    /// A question about somebody.
    fn review(&mut self) -> Question {
        let who = self.identity();
        let mut groups = who.groups.clone();
        // As a request's would be.
        if let Some(rest) = who.user.strip_prefix("system:serviceaccount:") {
            let namespace = rest.split(':').next().unwrap_or_default();
            groups.extend([
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ]);
        }
        groups.push("system:authenticated".to_owned());
        let mut spec = json!({"user": who.user, "groups": groups});
        if self.often(10) {
            spec["nonResourceAttributes"] = json!({
                "verb": self.of(&["get", "post"]), "path": self.of(&["/metrics", "/logs", "/logs/a", "/x", "/apis/a"]),
            });
        } else {
            let resource = self.of(RESOURCES);
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let namespace = if self.often(85) {
                self.namespace()
            } else {
                String::new()
            };
            spec["resourceAttributes"] = json!({
                "verb": self.of(VERBS), "group": self.of(GROUPS), "resource": resource, "subresource": part,
                "namespace": namespace, "name": self.of(&["", "x", "y", "z"]),
            });
        }
        let what = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        Question::of_admin(what, json!({"spec": spec}))
    }
}
