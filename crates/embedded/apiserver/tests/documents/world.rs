//! A server whose objects are on disk, asked as its administrator.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::auth::User;
use plimsoll_apiserver::embed::{Config, Running};
use plimsoll_apiserver::resource;
use plimsoll_apiserver::server::Trusted;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::requests::Request;

/// For anything that is not at once.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    running: Running,
    folder: TempDir,
    /// What was acknowledged last.
    known: BTreeMap<String, Value>,
    codes: BTreeMap<u16, usize>,
}

pub struct Answer {
    code: StatusCode,
    body: Bytes,
}

/// Of a kind with fields of every sort.
fn definition() -> Value {
    let keyed = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"x-kubernetes-preserve-unknown-fields": true},
    }});
    let schema = json!({"type": "object", "properties": {
        "open": {"x-kubernetes-preserve-unknown-fields": true},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": keyed},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "closed": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 5}, "default": {"a": 1}},
        "choice": {"anyOf": [{"enum": ["a", "b", 1, null]}, {"not": {"enum": [2]}}], "x-kubernetes-int-or-string": true},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [{"name": "All", "type": "string", "jsonPath": ".open..[*]..[*]..[*]"}],
            }],
        },
    })
}

impl Answer {
    pub fn code(&self) -> u16 {
        self.code.as_u16()
    }
}

async fn start(folder: &TempDir) -> Result<Running, String> {
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: Some(folder.path().to_owned()),
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match config.clone().build().await {
            // Nobody else changes anything meanwhile.
            Ok(plane) => return Ok(plane.spawn_without_controllers()),
            // The tasks of the one before may still be ending.
            Err(error)
                if Instant::now() < deadline && error.to_string().contains("already open") =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(format!("it does not start again: {error}")),
        }
    }
}

impl World {
    pub async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let running = start(&folder).await.unwrap();
        let definition = Bytes::from(definition().to_string());
        let mut request =
            http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
                .header("content-type", "application/json")
                .body(Full::new(definition))
                .unwrap();
        request
            .extensions_mut()
            .insert(Trusted(User::master("admin")));
        let answer = running.server().handle(request).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        Self {
            running,
            folder,
            known: BTreeMap::new(),
            codes: BTreeMap::new(),
        }
    }

    /// As it was acknowledged.
    pub fn object(&self, path: &str) -> Option<&Value> {
        self.known.get(path)
    }

    pub fn summary(&self) -> String {
        format!("{:?}", self.codes)
    }

    pub async fn ask(&mut self, request: &Request) -> Answer {
        let mut asked = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header("content-type", request.media)
            .header("accept", request.accept)
            .body(Full::new(Bytes::from(request.body.clone())))
            .unwrap();
        asked
            .extensions_mut()
            .insert(Trusted(User::master("admin")));
        let answer = tokio::time::timeout(PATIENCE, self.running.server().handle(asked));
        let (head, mut body) = answer.await.unwrap().into_parts();
        let watches = request.path.contains("watch=1") && head.status == StatusCode::OK;
        let body = match watches {
            // Of a watch, what comes at once.
            true => {
                let first = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap();
                let first = first
                    .and_then(Result::ok)
                    .and_then(|frame| frame.into_data().ok());
                first.unwrap_or_default()
            }
            false => tokio::time::timeout(PATIENCE, body.collect())
                .await
                .unwrap()
                .unwrap()
                .to_bytes(),
        };
        *self.codes.entry(head.status.as_u16()).or_default() += 1;
        let answer = Answer {
            code: head.status,
            body,
        };
        self.note(request, &answer).await;
        answer
    }

    /// What is there after a write that was acknowledged.
    async fn note(&mut self, request: &Request, answer: &Answer) {
        let Some(object) = &request.object else {
            return;
        };
        if request.method == Method::GET || !answer.code.is_success() {
            return;
        }
        // Under one name, different versions and groups show the same.
        let end = object
            .rmatch_indices('/')
            .nth(1)
            .map_or("", |(at, _)| &object[at..]);
        self.known.retain(|known, _| !known.ends_with(end));
        // Roles gather the rules of others.
        if object.contains("/clusterroles/") {
            self.known
                .retain(|known, _| !known.contains("/clusterroles/"));
        }
        match self.read(object).await {
            Some(value) => self.known.insert(object.clone(), value),
            None => self.known.remove(object),
        };
    }

    async fn read(&self, path: &str) -> Option<Value> {
        let mut request = http::Request::get(path)
            .body(Full::new(Bytes::new()))
            .unwrap();
        request
            .extensions_mut()
            .insert(Trusted(User::master("admin")));
        let answer = self.running.server().handle(request).await;
        let code = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code == StatusCode::OK).then(|| serde_json::from_slice(&body).unwrap())
    }

    /// An answer is an object of some kind, a Status among them, or nothing is said at all.
    pub fn check(&self, request: &Request, answer: &Answer) -> Result<(), String> {
        let Answer { code, body } = answer;
        let text = || String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        if body.len() > 64 << 20 {
            return Err(format!("an answer of {} bytes", body.len()));
        }
        if *code == StatusCode::INTERNAL_SERVER_ERROR
            && body.windows(8).any(|part| part == b"panicked")
        {
            return Err(format!("something panicked: {}", text()));
        }
        if request.accept.contains("yaml")
            || body.is_empty()
            || body.starts_with(b"404 page not found")
        {
            return Ok(());
        }
        let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let whole = if request.path.contains("watch=1") {
            first
        } else {
            &body[..]
        };
        let value: Value = serde_json::from_slice(whole)
            .map_err(|error| format!("{code}: {error}: {}", text()))?;
        let is_said = value["kind"].is_string() || value["type"].is_string();
        match is_said && !code.is_informational() {
            true => Ok(()),
            false => Err(format!("{code}: {}", text())),
        }
    }

    /// Everything that is there, by its path.
    async fn all(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for one in resource::builtin()
            .iter()
            .filter(|one| one.has_verb("list"))
        {
            let root = match one.group.as_str() {
                "" => format!("/api/{}", one.version),
                group => format!("/apis/{group}/{}", one.version),
            };
            let list = self.read(&format!("{root}/{}", one.plural)).await;
            for item in list
                .iter()
                .flat_map(|list| list["items"].as_array())
                .flatten()
            {
                let meta = &item["metadata"];
                all.insert(
                    format!(
                        "{root}/{}/{}/{}",
                        one.plural, meta["namespace"], meta["name"]
                    ),
                    item.clone(),
                );
            }
        }
        all
    }

    /// Ends the server, starts it again, and compares.
    pub async fn restart(self) -> Result<Self, String> {
        let before = self.all().await;
        // What a role gathers of others is written down for people by a task, whenever that changes.
        let gathers = |known: &Value| known["aggregationRule"].is_object();
        for (path, known) in self.known.iter().filter(|(_, known)| !gathers(known)) {
            if self.read(path).await.as_ref() != Some(known) {
                return Err(format!("{path} is not what was acknowledged"));
            }
        }
        self.running.drain(PATIENCE).await;
        let again = Self {
            running: start(&self.folder).await?,
            ..self
        };
        let after = again.all().await;
        for (path, was) in &before {
            // What it announces of itself it writes anew.
            let own = path.contains("\"kubernetes\"")
                || path.contains("/leases/")
                || path.contains("apiservices")
                || gathers(was);
            if !own && after.get(path) != Some(was) {
                return Err(format!("{path} was {was} and is {:?}", after.get(path)));
            }
        }
        Ok(again)
    }
}
