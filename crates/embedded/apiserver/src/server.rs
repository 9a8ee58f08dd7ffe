//! The server: from a request to an answer.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as HttpBody;
use jiff::Timestamp;
use plimsoll_apimachinery::timeout::timeout;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Shutdown, ShutdownTrigger};
use plimsoll_serving::health::is_health_check;
use plimsoll_serving::{
    ArrivalError, CaBundle, Counters, Lasting, Peer, TooMuch, Visit, caught, flow_of,
};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::aggregate::Aggregator;
use crate::answer::{self, Answer, Format, Offer};
use crate::aside::{Aside, LARGE};
use crate::auth::{Authority, MASTERS, Review, User};
use crate::catalogue::Catalogue;
use crate::definitions::Definitions;
use crate::gaps;
use crate::kinds::Lookup;
use crate::openapi::OpenApi;
use crate::paths::page_not_found;
use crate::request::{Query, RequestInfo, ResourcePath};
use crate::rest::body::MAX_BODY;
use crate::rest::{self, Call};
use crate::served::Served;
use crate::status::StatusError;
use crate::store::Store;

/// What others in the same process add to the page of metrics.
#[derive(Default)]
struct MoreMetrics(OnceLock<Box<dyn Fn() -> String + Send + Sync>>);

impl std::fmt::Debug for MoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MoreMetrics").finish_non_exhaustive()
    }
}

/// A handle on the server; clones are the same server.
#[derive(Debug, Clone)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    catalogue: ArcSwap<Catalogue>,
    /// Held by who makes the next catalogue.
    definitions: Mutex<Definitions>,
    authority: Authority,
    openapi: OpenApi,
    aside: Aside,
    aggregator: Aggregator,
    /// Who signs clients' certificates.
    clients: CaBundle,
    stopper: ShutdownTrigger,
    counters: Arc<Counters>,
    more_metrics: MoreMetrics,
    /// Whether it stands for a whole control plane, and says what it does not do of that.
    tells_gaps: AtomicBool,
}

/// Put into a request by somebody in the same process: the request is this user's, and nobody is asked.
#[derive(Debug, Clone)]
pub struct Trusted(pub User);

impl Server {
    pub async fn new(store: Store, authority: Authority, clients: CaBundle) -> Self {
        let (stopper, _) = shutdown::channel();
        let server = Self(Arc::new(Inner {
            store,
            catalogue: ArcSwap::from_pointee(Catalogue::builtin()),
            definitions: Mutex::default(),
            authority,
            openapi: OpenApi::default(),
            aside: Aside::default(),
            aggregator: Aggregator::default(),
            clients,
            stopper,
            counters: Arc::default(),
            more_metrics: MoreMetrics::default(),
            tells_gaps: AtomicBool::new(false),
        }));
        server.bootstrap().await;
        server
    }

    pub(crate) fn openapi(&self) -> &OpenApi {
        &self.0.openapi
    }

    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    /// Adds to the page of metrics; the first who asks counts.
    pub fn add_metrics(&self, page: impl Fn() -> String + Send + Sync + 'static) {
        // Who comes second has nothing to add.
        let _ = self.0.more_metrics.0.set(Box::new(page));
    }

    pub(crate) fn more_metrics(&self) -> String {
        let page = self.0.more_metrics.0.get();
        page.map(|page| page()).unwrap_or_default()
    }

    /// How often tasks of the server began anew after a panic.
    pub(crate) fn task_restarts(&self) -> u64 {
        self.0.stopper.task_restarts()
    }

    /// Tasks of the server that panicked and have not begun anew yet.
    pub(crate) fn tasks_down(&self) -> Vec<&'static str> {
        self.0.stopper.tasks_down()
    }

    /// What happens on the way to the server, and in it.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.0.counters)
    }

    pub fn aggregator(&self) -> &Aggregator {
        &self.0.aggregator
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.0.catalogue.load_full()
    }

    pub(crate) fn definitions(&self) -> &Mutex<Definitions> {
        &self.0.definitions
    }

    pub(crate) fn replace_catalogue(&self, catalogue: Catalogue) {
        self.0.openapi.keep(catalogue.definitions());
        self.0.catalogue.store(Arc::new(catalogue));
    }

    /// From now on clients are warned of what is accepted and not done.
    pub(crate) fn tell_gaps(&self) {
        self.0.tells_gaps.store(true, Ordering::Relaxed);
    }

    /// What will not be done about an object, and was not told before.
    pub(crate) fn gap(
        &self,
        served: &Served,
        object: &Value,
        old: Option<&Value>,
    ) -> Option<String> {
        if !self.0.tells_gaps.load(Ordering::Relaxed) {
            return None;
        }
        let told = old.and_then(|old| gaps::of(served, old));
        gaps::of(served, object).filter(|gap| told.as_ref() != Some(gap))
    }

    /// Begins when watches are to end.
    pub fn shutdown(&self) -> Shutdown {
        self.0.stopper.shutdown()
    }

    /// Ends the watches, so that connections can be closed.
    pub fn stop(&self) {
        self.0.stopper.stop();
    }

    pub async fn handle<B>(&self, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let warning = crate::auth::ignored_token_warning(request.headers());
        let mut answer = self.answered(request).await;
        if let Some(warning) = warning {
            answer::warn_first(&mut answer, warning);
        }
        answer
    }

    async fn answered<B>(&self, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let remote = self.aggregator().at(parts.uri.path());
        if !matches!(
            parts.method,
            Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE
        ) && info.resource.is_some()
            && remote.is_none()
        {
            return answer::failure(&StatusError::method_not_supported(), &Format::JSON);
        }
        if info.verb != "watch"
            && let Err(refused) = timeout(&query)
        {
            let format = Format::of_refusal(&parts.headers, query.get("pretty"), Offer::default());
            return answer::failure(&refused, &format.unwrap_or(Format::JSON));
        }
        let plain = |refused: &StatusError| answer::failure(refused, &Format::JSON);
        let user = match self.admitted(&parts, &info) {
            Ok(user) => user,
            Err(refused) => {
                let mut answer = plain(&refused);
                if refused.code == StatusCode::FORBIDDEN {
                    let nosniff = http::HeaderValue::from_static("nosniff");
                    let header = http::header::X_CONTENT_TYPE_OPTIONS;
                    answer.headers_mut().insert(header, nosniff);
                }
                return answer;
            }
        };
        if let Some(remote) = remote {
            let watches = info.verb == "watch";
            return self.forward(&remote, &user, watches, parts, body).await;
        }
        let Some(path) = &info.resource else {
            return self.other_path(&parts.method, &info.path, &query, &parts.headers);
        };
        let format = match Format::negotiate(
            &parts.headers,
            query.get("pretty"),
            Offer {
                lists: matches!(info.verb, "list" | "watch" | "deletecollection"),
                forms: true,
                ..Offer::default()
            },
        ) {
            Ok(format) => format,
            Err(refused) => return plain(&refused),
        };
        let body = match has_body(info.verb) {
            true => read(body).await,
            // Nobody waits for what nobody looks at.
            false => Ok(Bytes::new()),
        };
        let body = match body {
            Ok(body) => body,
            Err(refused) => return answer::failure(&refused, &format),
        };
        let catalogue = self.catalogue();
        let Some(served) = catalogue.find(&path.group, &path.version, &path.resource) else {
            if crate::resource::builtin()
                .iter()
                .any(|one| one.group == path.group)
            {
                return answer::failure(&StatusError::no_such_resource(), &format);
            }
            return page_not_found();
        };
        let call = Call {
            server: self,
            served,
            info: &info,
            path,
            query: &query,
            headers: &parts.headers,
            user: &user,
            format: format.clone(),
            now: Timestamp::now(),
        };
        let outcome = self.resource(&call, path, &body);
        let outcome = match is_long(&call, &body) {
            false => outcome.await,
            true => self.0.aside.run(line_of(&user), outcome).await,
        };
        let mut answer = match outcome {
            Ok(answer) => answer,
            Err(refused) => answer::failure(&refused, &format),
        };
        let is_place_of_it = path.namespace.is_empty() || served.resource.namespaced();
        if is_place_of_it
            && answer.status() != StatusCode::METHOD_NOT_ALLOWED
            && let Some(warning) = served.deprecation()
        {
            answer::warn_first(&mut answer, warning);
        }
        answer
    }

    /// Who asks, if they may.
    fn admitted(&self, parts: &Parts, info: &RequestInfo) -> Result<User, StatusError> {
        if let Some(Trusted(user)) = parts.extensions.get() {
            return Ok(user.clone());
        }
        let certificate = parts
            .extensions
            .get::<Peer>()
            .filter(|peer| peer.verified_by(&self.0.clients).is_ok())
            .and_then(|peer| peer.certificates.first())
            .map(AsRef::as_ref);
        let user = self
            .authority()
            .authenticate(&parts.headers, certificate, self)?;
        // Whoever asks how we are is always answered.
        if let Some(visit) = parts.extensions.get::<Visit>()
            && !is_health_check(&info.path)
        {
            let lasting = match info.verb {
                "watch" => Lasting::Long,
                _ => Lasting::Short,
            };
            let admitted = visit.admit(&user.name, &user.groups, lasting);
            admitted.map_err(|TooMuch| StatusError::too_many_requests())?;
        }
        let user = self.authority().impersonate(user, &parts.headers, info)?;
        let mut narrowed = info.clone();
        narrowed.narrow(&Query::parse(parts.uri.query().unwrap_or_default()));
        self.authority().authorize(&user, &narrowed)?;
        Ok(user)
    }

    async fn resource(
        &self,
        call: &Call<'_>,
        path: &ResourcePath,
        body: &[u8],
    ) -> Result<Answer, StatusError> {
        let resource = &call.served.resource;
        let fits = check_path(path, resource.namespaced());
        if fits.is_err() && call.served.is_custom() {
            return Ok(page_not_found());
        }
        fits?;
        if !path.subresource.is_empty() {
            return rest::subresource::handle(call, body).await;
        }
        if call.served.is_custom() && !resource.has_verb(call.info.verb) {
            // Its definition is going: objects can still be changed, so that their finalizers can go, too.
            if call.info.verb == "create" && path.name.is_empty() {
                return rest::create::refuse_while_terminating(call, body);
            }
        } else if !resource.has_verb(call.info.verb) {
            let only_created = resource.verbs.iter().all(|verb| verb == "create");
            return Err(if only_created && !path.name.is_empty() {
                StatusError::no_such_resource()
            } else {
                StatusError::method_not_supported()
            });
        }
        if resource.namespaced()
            && path.namespace.is_empty()
            && matches!(call.info.verb, "create" | "deletecollection")
        {
            return Err(StatusError::method_not_supported());
        }
        if let Some(review) = Review::of(path) {
            return rest::actions::review(call, review, body);
        }
        if resource.plural == "bindings" && resource.group.is_empty() {
            return rest::actions::bind(call, body).await;
        }
        match call.info.verb {
            "get" => rest::read::get(call),
            "list" => rest::read::list(call),
            "watch" => rest::watch::watch(call),
            // A collection is posted to, everything else is done to one object.
            "create" if !path.name.is_empty() => Err(StatusError::method_not_supported()),
            "create" => rest::create::create(call, body).await,
            "update" if path.name.is_empty() => Err(StatusError::method_not_supported()),
            "update" => rest::update::update(call, body).await,
            "patch" if path.name.is_empty() => Err(StatusError::method_not_supported()),
            "patch" => rest::patch::patch(call, body).await,
            "delete" => rest::delete::delete(call, body).await,
            "deletecollection" => rest::delete::delete_collection(call, body).await,
            _ => Err(StatusError::method_not_supported()),
        }
    }
}

/// Whether there is a lot to read, to change or to look through.
fn is_long(call: &Call<'_>, body: &[u8]) -> bool {
    let store = call.server.store();
    let changes = matches!(call.info.verb, "update" | "patch");
    let changed = || store.get(&call.served.shelf, &call.key());
    // Whoever grants rights has to have them, which is looked up in all that they have.
    let grants = call.served.resource.group == "rbac.authorization.k8s.io"
        && matches!(call.info.verb, "create" | "update" | "patch");
    let selectors = ["labelSelector", "fieldSelector"].map(|name| call.query.get(name));
    let selected: usize = selectors.into_iter().flatten().map(str::len).sum();
    body.len() > LARGE
        || grants
        || selected.saturating_mul(store.count(&call.served.shelf)) > LONG_SEARCH
        || (changes && changed().is_some_and(|object| object.size() > LARGE))
}

/// With whom a client waits for a turn. Administrators wait with nobody.
fn line_of(user: &User) -> Option<Arc<str>> {
    let is_administrator = user.groups.iter().any(|group| group == MASTERS);
    (!is_administrator).then(|| flow_of(&user.name))
}

/// Bytes of selectors times objects: more takes longer than a few milliseconds.
const LONG_SEARCH: usize = 1 << 20;

/// Whether the path can be one of this resource at all.
fn check_path(path: &ResourcePath, namespaced: bool) -> Result<(), StatusError> {
    let of_namespaces = path.resource == "namespaces" && path.group.is_empty();
    let scoped = !path.namespace.is_empty() && !of_namespaces;
    let unscoped_name = namespaced && path.namespace.is_empty() && !path.name.is_empty();
    if (scoped && !namespaced) || unscoped_name {
        return Err(StatusError::no_such_resource());
    }
    // What is below a name is looked for first.
    if path.subresource.is_empty() && matches!(path.name.as_str(), "." | "..") {
        return Err(StatusError::bad_request(format!(
            "Name parameter invalid: {}: may not be '{}'",
            plimsoll_golang::strconv::quote(&path.name),
            path.name
        )));
    }
    if matches!(path.namespace.as_str(), "." | "..") {
        return Err(StatusError::server_error(format!(
            "invalid key: {}",
            plimsoll_golang::strconv::quote(&format!("/{}/{}", path.resource, path.namespace))
        )));
    }
    Ok(())
}

fn has_body(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch")
}

/// The body in one piece. What came in many small ones does not stay in the large buffers in which they came.
async fn read<B>(body: B) -> Result<Bytes, StatusError>
where
    B: HttpBody<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, MAX_BODY));
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|error| unread(&*error))?.into_data();
        let Ok(data) = data else { continue };
        if all.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Why a body was not read.
fn unread(error: &(dyn std::error::Error + Send + Sync + 'static)) -> StatusError {
    if error.is::<LengthLimitError>() {
        return StatusError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {MAX_BODY}"),
        );
    }
    match error.downcast_ref() {
        Some(ArrivalError::TooSlow) => {
            StatusError::new(StatusCode::REQUEST_TIMEOUT, "Timeout", error.to_string())
        }
        Some(ArrivalError::TooMuch(TooMuch)) => StatusError::too_many_requests(),
        Some(ArrivalError::Broken(_)) | None => {
            StatusError::bad_request(format!("cannot read the body: {error}"))
        }
    }
}

impl Lookup for Server {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = if namespace.is_empty() {
            name.to_owned()
        } else {
            format!("{namespace}/{name}")
        };
        self.store()
            .get(resource, &key)
            .map(|stored| stored.value())
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let prefix = if namespace.is_empty() {
            String::new()
        } else {
            format!("{namespace}/")
        };
        self.store()
            .list(resource, &prefix, None, None, usize::MAX, |_| true)
            .map(|page| page.items.iter().map(|item| item.value()).collect())
            .unwrap_or_default()
    }
}

/// As the transport of a client in the same process, or behind a socket.
impl<B> tower::Service<Request<B>> for Server
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        let counters = self.counters();
        Box::pin(async move {
            let answer = caught(&counters, server.handle(request)).await;
            Ok(answer.unwrap_or_else(|panicked| {
                answer::failure(&StatusError::internal(panicked.to_string()), &Format::JSON)
            }))
        })
    }
}
