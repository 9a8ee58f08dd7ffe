//! A server in a process of its own, and those who ask it.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_apiserver::embed::{Config, Options};
use plimsoll_test_support::proc::rss_kib;
use serde_json::{Value, json};

use crate::client::Client;

/// Set for the process that is the server: how many connections it has room for.
const ASKED: &str = "PLIMSOLL_BURDEN_CONNECTIONS";
/// In front of the line in which it says where it is.
const MARK: &str = "serving ";
pub const BIG: usize = 8;
pub const BIG_BYTES: usize = 700_000;

pub struct Rig {
    server: Child,
    pub connections: usize,
    pub admin: Client,
    /// May do what `edit` allows, in one namespace.
    pub editor: Client,
    /// Has a token and no rights.
    pub nobody: Client,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// In the process that is to be the server: serves until nobody listens any more.
pub fn serve_if_asked(runtime: fn() -> tokio::runtime::Runtime) {
    let Some(connections) = std::env::var(ASKED).ok() else {
        return;
    };
    let connections = connections.parse().unwrap();
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: Some(folder.path().to_owned()),
        };
        let mut options = Options::default();
        options.limits.connections = connections;
        let running = config.build_with(options).await.unwrap().spawn();
        let told = json!({
            "address": running.local_addr().to_string(),
            "authority": running.credentials().authority,
            "token": running.credentials().admin_token,
        });
        println!("\n{MARK}{told}");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = ended.await;
        running.drain(Duration::from_secs(1)).await;
    });
}

impl Rig {
    pub async fn start(connections: usize) -> Self {
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["the_server", "--exact", "--nocapture"])
            .env(ASKED, connections.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let told = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(MARK).map(str::to_owned));
        let told: Value = serde_json::from_str(&told.expect("a server")).unwrap();
        let of = |key: &str| told[key].as_str().unwrap().to_owned();
        let admin = Client::new(
            of("address").parse().unwrap(),
            &of("authority"),
            &of("token"),
        );
        let rig = Self {
            server,
            connections,
            nobody: admin.clone(),
            editor: admin.clone(),
            admin,
        };
        rig.furnish().await
    }

    pub fn memory_kib(&self) -> u64 {
        rss_kib(self.server.id()).unwrap()
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (status, told) = self
            .admin
            .ask("POST", path, &object.to_string())
            .await
            .unwrap();
        assert_eq!(status, 201, "{path}: {told}");
        serde_json::from_str(&told).unwrap()
    }

    async fn furnish(mut self) -> Self {
        self.create(
            "/api/v1/namespaces",
            json!({"metadata": {"name": "tenant"}}),
        )
        .await;
        self.create("/api/v1/namespaces", json!({"metadata": {"name": "other"}}))
            .await;
        let mut tokens = Vec::new();
        for (namespace, name) in [("tenant", "editor"), ("other", "nobody")] {
            let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            self.create(&accounts, json!({"metadata": {"name": name}}))
                .await;
            let path = format!("{accounts}/{name}/token");
            let token = self.create(&path, json!({"spec": {}})).await;
            tokens.push(token["status"]["token"].as_str().unwrap().to_owned());
        }
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/rolebindings";
        let binding = json!({
            "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": "tenant"}],
        });
        self.create(bindings, binding).await;
        let maps = "/api/v1/namespaces/tenant/configmaps";
        let small = json!({"metadata": {"name": "small"}, "data": {"a": "b"}});
        self.create(maps, small).await;
        for n in 0..BIG {
            let big = json!({"metadata": {"name": format!("big-{n}")}, "data": {"a": "x".repeat(BIG_BYTES)}});
            self.create(maps, big).await;
        }
        self.editor = self.admin.with_token(&tokens[0]);
        self.nobody = self.admin.with_token(&tokens[1]);
        self
    }
}
