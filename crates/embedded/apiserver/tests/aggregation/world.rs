//! An embedded control plane, and a server behind it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use parking_lot::Mutex;
use plimsoll_apiserver::aggregate::RemoteSpec;
use plimsoll_apiserver::aggregate::backend::{Backend, BoxError, Proof};
use plimsoll_apiserver::aggregate::resolve::ServiceRef;
use plimsoll_apiserver::auth::{MASTERS, User};
use plimsoll_apiserver::embed::{Config, Running};
use plimsoll_apiserver::server::Trusted;
use plimsoll_serving::auth::{
    Access, AuthFilter, Authenticator, Authorizer, AuthorizerConfig, CertificateExpiration,
    DelegatedAuth, DelegatedAuthConfig, FilterMetrics, ImpersonationModeCache, TokenReviewer,
};
use plimsoll_serving::{Arriving, Certificate, Clients, Serving, Tls, certified_key};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub const GROUP: &str = "agg.example.com";
pub const THINGS: &str = "/apis/agg.example.com/v1/namespaces/default/things";

/// For anything that is not at once.
pub const PATIENCE: Duration = Duration::from_secs(60);

type Body = UnsyncBoxBody<Bytes, BoxError>;

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub struct World {
    pub running: Running,
    /// As clients see it.
    pub front: Backend,
}

impl World {
    pub async fn start() -> Self {
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: None,
        };
        let running = config.build().await.unwrap().spawn();
        let authority = running.credentials().authority.clone().into_bytes();
        let service = reference("default", "kubernetes", 443);
        let front = Backend::new(&spec(service, Proof::Authorities(authority)), None);
        Self { running, front }
    }

    /// In the same process, as administrator.
    pub async fn admin(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut request = Request::new(Full::new(Bytes::from(text)));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("content-type", "application/json".parse().unwrap());
        request.extensions_mut().insert(Trusted(admin()));
        let answer = self.running.server().handle(request).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (
            head.status,
            serde_json::from_slice(&body).unwrap_or(Value::Null),
        )
    }

    pub async fn get(&self, path: &str) -> Value {
        self.admin(Method::GET, path, Value::Null).await.1
    }

    pub async fn create(&self, path: &str, object: Value) {
        let (status, answer) = self.admin(Method::POST, path, object).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }

    /// By HTTPS, as administrator, with further headers.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let token = format!("Bearer {}", self.running.credentials().admin_token);
        let mut all = vec![("authorization", token.as_str())];
        all.extend(headers);
        let to = self.running.local_addr();
        send(&self.front, to, method, path, &all, body).await
    }

    /// A service that is at an address, and an APIService that names it.
    pub async fn register(&self, group: &str, service: &str, port: u16, proof: Value) {
        self.create(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": service}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}),
        )
        .await;
        let mut object = json!({
            "metadata": {"name": format!("v1.{group}")},
            "spec": {
                "group": group, "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 15,
                "service": {"namespace": "default", "name": service, "port": port},
            },
        });
        for (key, value) in proof.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        self.create("/apis/apiregistration.k8s.io/v1/apiservices", object)
            .await;
    }

    /// The `Available` condition of an APIService, once it says `reason`.
    pub async fn condition(&self, group: &str, reason: &str) -> Value {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let object = self.get(&path).await;
            let condition = &object["status"]["conditions"][0];
            if condition["reason"] == reason {
                return condition.clone();
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "no {reason}: {object}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The group's part of aggregated discovery.
    pub async fn discovered(&self, group: &str) -> Value {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let answer = self
            .ask(Method::GET, "/apis", &[("accept", accept)], "")
            .await;
        let document: Value = serde_json::from_str(&text(answer).await).unwrap();
        let groups = document["items"].as_array().unwrap();
        let found = groups.iter().find(|one| one["metadata"]["name"] == group);
        found.cloned().unwrap_or_default()
    }
}

pub fn admin() -> User {
    User {
        name: "root".to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..User::default()
    }
}

fn reference(namespace: &str, name: &str, port: u16) -> ServiceRef {
    ServiceRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        port,
    }
}

/// For a client of ours, which is none of the aggregator's.
fn spec(service: ServiceRef, proof: Proof) -> RemoteSpec {
    RemoteSpec {
        name: String::new(),
        group: String::new(),
        version: String::new(),
        group_priority: 1,
        version_priority: 1,
        service,
        proof,
    }
}

pub async fn send(
    client: &Backend,
    to: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response<Incoming> {
    let mut request = Request::new(full(body.to_owned()));
    *request.method_mut() = method;
    *request.uri_mut() = format!("https://{to}{path}").parse().unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::try_from(*name).unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    client.send(request).await.unwrap()
}

pub async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// An authority, and certificates of it.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority-{}", fastrand::u64(..));
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// For an APIService.
    pub fn bundle(&self) -> String {
        STANDARD.encode(self.0.pem())
    }

    pub fn key(&self, name: &str) -> Arc<rustls::sign::CertifiedKey> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap().pem();
        certified_key(cert.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// A server with delegated authentication and authorization, whose answers tell whom it takes the client for.
pub struct Aggregated {
    pub serving: Serving,
    /// What arrived, in short: method, target, and the names of its headers.
    pub arrived: Arc<Mutex<Vec<String>>>,
    /// What watchers are to get.
    pub events: mpsc::UnboundedSender<&'static str>,
}

impl Aggregated {
    pub async fn start(world: &World, authority: &Authority, name: &str) -> Self {
        let server = world.running.server().clone();
        let client = kube::Client::new(
            tower::service_fn(move |mut request: Request<kube::client::Body>| {
                request.extensions_mut().insert(Trusted(admin()));
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.handle(request).await) }
            }),
            "default",
        );
        let delegation = DelegatedAuth::lookup(&client, DelegatedAuthConfig::default())
            .await
            .unwrap();
        let tokens = TokenReviewer::new(client.clone(), Vec::new(), Duration::from_secs(10));
        let gate = AuthFilter {
            habits: ImpersonationModeCache::default(),
            filters: FilterMetrics::default(),
            authenticator: Authenticator {
                front_proxy: delegation.front_proxy.clone(),
                client_ca: delegation.client_ca.clone(),
                tokens: Some(Arc::new(tokens)),
                anonymous: false,
                expirations: CertificateExpiration::default(),
            },
            authorizer: Authorizer::new(client, AuthorizerConfig::default()).unwrap(),
        };
        let mut config = plimsoll_serving::Config::loopback();
        let mut tls = Tls::new(Certificate::Given(authority.key(name)));
        tls.clients = Clients::Requested(vec![delegation.front_proxy.trust, delegation.client_ca]);
        config.tls = Some(tls);
        let (events, watched) = mpsc::unbounded_channel();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let role = Role {
            gate,
            arrived: arrived.clone(),
            watched: Arc::new(Mutex::new(Some(watched))),
        };
        let service = tower::service_fn(move |request| {
            let role = role.clone();
            async move { Ok::<_, Infallible>(role.answer(request).await) }
        });
        Self {
            serving: config.bind().await.unwrap().spawn(service),
            arrived,
            events,
        }
    }
}

#[derive(Clone)]
struct Role {
    gate: AuthFilter,
    arrived: Arc<Mutex<Vec<String>>>,
    watched: Arc<Mutex<Option<mpsc::UnboundedReceiver<&'static str>>>>,
}

impl Role {
    async fn answer(&self, request: Request<Arriving>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let mut names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        let arrived = format!("{} {} {}", head.method, head.uri, names.join(","));
        self.arrived.lock().push(arrived);
        let path = head.uri.path().to_owned();
        let access = match path.starts_with(THINGS) {
            true => Access::resource(ResourceAttributes {
                verb: Some("list".to_owned()),
                group: Some(GROUP.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("things".to_owned()),
                namespace: Some("default".to_owned()),
                ..ResourceAttributes::default()
            }),
            false => Access::path(&head.method, &path),
        };
        let user = match self.gate.admit(&mut head, access).await {
            Ok(user) => user,
            Err(refusal) => {
                let response = refusal.into_response();
                return response.map(|body| body.map_err(|never| match never {}).boxed_unsync());
            }
        };
        if head.uri.query() == Some("watch=1") {
            let events = self.watched.lock().take().unwrap();
            let events = futures::stream::unfold(events, |mut events| async move {
                let event = events.recv().await?;
                Some((Ok(Frame::data(Bytes::from(event))), events))
            });
            return Response::new(StreamBody::new(events.boxed()).boxed_unsync());
        }
        let body = body.collect().await.unwrap().to_bytes();
        let answer = match path.as_str() {
            "/apis/agg.example.com/v1" => json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "agg.example.com/v1",
                "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                               "verbs": ["list"]}],
            }),
            path if path.ends_with("/elsewhere") => {
                let answer = Response::builder().status(302).header("location", "/x");
                return answer.body(full("")).unwrap();
            }
            path if path.starts_with(THINGS) => json!({
                "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                "body": String::from_utf8_lossy(&body),
            }),
            _ => {
                let answer = Response::builder().status(404);
                return answer.body(full("nothing")).unwrap();
            }
        };
        Response::builder()
            .header("content-type", "application/json")
            .header("x-own", "yes")
            .body(full(answer.to_string()))
            .unwrap()
    }
}
