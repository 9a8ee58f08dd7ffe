//! Handles one request. No sockets here, so tests call it directly.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::exposition::{Dialect, Gathered, TextWriter};
use crate::kubelet;
use crate::rest::By;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ALLOW, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, StatusCode, request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Bytes};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_observe::{Group, GroupSet};
use plimsoll_serving::auth::{Access, AuthFilter};
use plimsoll_serving::{Panicked, caught};
use tokio::sync::Semaphore;

use super::api::{self, EventHub, Options, blocking, wait_for_sample};
use super::auth::{Auth, Verdict};
use super::backend::Backend;
use super::body::{Body, render_streaming};
use super::counters::Counters;
use super::extra::{ExtraPage, ExtraRoute};
use super::messages::MessageWriter;
use super::pages;
use super::response::{self, Failure, Reply};
use super::route::{Mounts, Route, route};
use super::server::Shown;
use super::url::Query;
use plimsoll_metrics::negotiate::{Form, Format};

const MAX_STREAMS: usize = 256;
/// Error of a port that serves metrics only.
const METRICS_ONLY: &str = "only metrics are served here; everything else is served by HTTPS to whom the cluster lets in, \
                         see --secure-listen and --open-to-all";
/// How long a draining server waits for the rest of a request's body.
const DRAIN_BODY_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: usize,
    pub header_bytes: usize,
    pub body_bytes: usize,
    /// For a request's head, and a TLS handshake, to arrive.
    pub head: Duration,
    /// For a request's body to arrive.
    pub body: Duration,
    /// Between requests on one connection.
    pub idle: Duration,
    /// For a client to take any byte of an answer.
    pub stalled: Duration,
    /// For the sampler to take the samples that a request asks for.
    pub pass: Duration,
    /// Concurrent pages, and as many other large answers: each holds memory.
    pub renders: usize,
    /// Time to wait for a permit when as many are under way.
    pub turn: Duration,
    /// For a client to fetch a large answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            header_bytes: 64 << 10,
            body_bytes: 1 << 20,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(180),
            stalled: Duration::from_secs(30),
            pass: Duration::from_secs(10),
            renders: 8,
            turn: Duration::from_secs(3),
            answer: Duration::from_secs(60),
        }
    }
}

/// What this port serves, and to whom.
#[derive(Debug, Default)]
pub struct Door {
    pub shown: Shown,
    /// Of the cluster; without it, [`Auth`] alone judges.
    pub gate: Option<AuthFilter>,
}

/// State shared by all requests.
pub struct ServerState {
    pub backend: Arc<dyn Backend>,
    pub door: Door,
    pub mounts: Mounts,
    pub extra: Vec<Arc<ExtraRoute>>,
    pub limits: Limits,
    pub auth: Arc<Auth>,
    pub counters: Arc<Counters>,
    pub hub: Arc<EventHub>,
    pub streams: Arc<Semaphore>,
    /// Permits for pages of container metrics.
    pub pages: Arc<Semaphore>,
    /// Permits for other large answers.
    pub renders: Arc<Semaphore>,
    /// Permits for short pages about the program itself, so that they work when the others are exhausted.
    pub own: Arc<Semaphore>,
    /// Begins when the server is to stop.
    pub draining: Shutdown,
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState")
            .field("mounts", &self.mounts)
            .finish_non_exhaustive()
    }
}

impl ServerState {
    pub fn new(
        backend: Arc<dyn Backend>,
        door: Door,
        mounts: Mounts,
        limits: Limits,
        auth: Arc<Auth>,
        counters: Arc<Counters>,
        draining: Shutdown,
    ) -> Self {
        let places_for = |count| Arc::new(Semaphore::new(count));
        let (pages, renders, own) = (limits.renders, limits.renders, limits.renders);
        let hub = EventHub::listen(&backend.observer().events);
        let extra = Arc::clone(&backend).extra_routes();
        Self {
            backend,
            door,
            mounts: mounts.with_extra(&extra),
            extra: extra.into_iter().map(Arc::new).collect(),
            limits,
            auth,
            counters,
            hub,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            pages: places_for(pages),
            renders: places_for(renders),
            own: places_for(own),
            draining,
        }
    }

    /// Renders a large answer in chunks on a blocking thread. The number of concurrent renders is bounded by permits of
    /// each kind: a slow reader keeps its permit and must not block other kinds of answers.
    pub async fn render_streaming<F>(
        &self,
        permits: &Arc<Semaphore>,
        make: F,
    ) -> Result<Body, Failure>
    where
        F: FnOnce(&mut dyn Write) -> Result<(), Failure> + Send + 'static,
    {
        let turn = Arc::clone(permits).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(self.limits.turn, turn).await else {
            return Err(Failure::service_unavailable());
        };
        render_streaming(self.limits.answer, move |out| {
            let _permit = permit;
            make(out)
        })
        .await
    }
}

/// Answers any request; a panic becomes an error response.
pub async fn serve<B>(shared: Arc<ServerState>, request: Request<B>) -> Reply
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let in_flight = shared.counters.request();
    let counters = Arc::clone(&shared.counters);
    let path = request.uri().path();
    let to = route(&shared.mounts, path, request.uri().query());
    let class = to.class();
    let outcome = caught(&counters.sockets, answer(shared, request, to)).await;
    let reply = outcome.unwrap_or_else(|Panicked| response::error(&Failure::defect()));
    counters.answered(class, reply.status().as_u16());
    response::with_length(reply).map(|body| body.accounted(counters, in_flight))
}

async fn answer<B>(shared: Arc<ServerState>, request: Request<B>, to: Route) -> Reply
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let (mut head, body) = request.into_parts();
    if let Some(refusal) = refused(&shared, &mut head, &to).await {
        return refusal;
    }
    match try_answer(shared, head, body, to).await {
        Ok(reply) => reply,
        Err(failure) => response::error(&failure),
    }
}

async fn refused(shared: &ServerState, head: &mut request::Parts, to: &Route) -> Option<Reply> {
    // Probes carry no credentials.
    if to.is_probe() {
        return None;
    }
    if shared.door.shown == Shown::Metrics && !to.is_of_metrics() {
        return Some(response::error(&Failure::new(
            StatusCode::FORBIDDEN,
            METRICS_ONLY,
        )));
    }
    match &shared.door.gate {
        Some(gate) => refused_by_cluster(gate, wanted(shared, to), head).await,
        None => refused_by_secrets(&shared.auth, &head.headers, to),
    }
}

/// Authorization as the kubelet asks for it: by subresource of the node, not by path (every account may get paths below
/// `/api`). All requests only read, so the verb is `get` for every method.
fn wanted(shared: &ServerState, to: &Route) -> Access {
    Access::resource(ResourceAttributes {
        verb: Some("get".to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(to.part_of_node().to_owned()),
        name: Some(shared.backend.node_name()),
        ..ResourceAttributes::default()
    })
}

async fn refused_by_cluster(
    gate: &AuthFilter,
    access: Access,
    head: &mut request::Parts,
) -> Option<Reply> {
    let refusal = gate.admit(head, access).await.err()?;
    let (parts, body) = refusal.into_response().into_parts();
    let text = body.collect().await.map(|body| body.to_bytes());
    let body = Body::full(text.unwrap_or_default());
    Some(Reply::from_parts(parts, body))
}

fn refused_by_secrets(auth: &Auth, headers: &HeaderMap, to: &Route) -> Option<Reply> {
    let challenge = match auth.judge(headers.get(AUTHORIZATION), to) {
        Verdict::Welcome => return None,
        Verdict::Refused { challenge } => challenge,
    };
    let mut reply = response::plain("401 Unauthorized\n");
    *reply.status_mut() = StatusCode::UNAUTHORIZED;
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    Some(reply)
}

async fn try_answer<B>(
    shared: Arc<ServerState>,
    head: request::Parts,
    body: B,
    to: Route,
) -> Result<Reply, Failure>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let query = Query::parse(head.uri.query().unwrap_or(""));
    match to {
        Route::Healthz => Ok(response::plain("ok")),
        Route::Readyz => ready(shared, query.get("verbose").is_some()).await,
        Route::Metrics => metrics(&shared, Dialect::Cadvisor, &head.headers, &query).await,
        Route::MetricsCadvisor => metrics(&shared, Dialect::Kubelet, &head.headers, &query).await,
        Route::MetricsResource => resource(&shared, &head.headers).await,
        Route::MetricsSelf => own_metrics(&shared, &head.headers).await,
        Route::StatsSummary => summary(&shared, &head.method, &query).await,
        Route::Sources => sources(shared, query).await,
        Route::Plan => Ok(response::plain(shared.backend.plan().describe())),
        Route::Extra(index, _) => extra(&shared, index, &head.headers, query).await,
        Route::Validate => {
            let report = blocking(move || shared.backend.validate()).await?;
            Ok(response::plain(report))
        }
        Route::Api(path) => {
            let body = match api::reads_body(&path) {
                true => read_body(&shared, body).await?,
                false => Bytes::new(),
            };
            api::answer(&shared, &path, query, body).await
        }
        Route::ContainersPage(path) => pages::container(shared, path).await,
        Route::RuntimePage(namespace, rest) => pages::runtime(shared, namespace, rest).await,
        Route::Static(path) => Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!(
                "unknown static resource {}",
                plimsoll_golang::strconv::quote(&path)
            ),
        )),
        Route::Redirect { to, permanent } => Ok(response::redirect(&head.method, &to, permanent)),
        Route::StatsNotFound => Ok(response::bare(StatusCode::NOT_FOUND, "404: Page Not Found")),
        Route::NotFound => Err(Failure::new(StatusCode::NOT_FOUND, "404 page not found")),
        Route::Malformed => Err(Failure::bad("400 Bad Request: malformed path")),
    }
}

async fn read_body<B>(shared: &ServerState, body: B) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let limits = &shared.limits;
    let whole = Limited::new(body, limits.body_bytes).collect();
    // Half a request is no reason for a draining server to stay.
    let late = async {
        tokio::select! {
            () = tokio::time::sleep(limits.body) => {}
            () = shared.draining.begins() => tokio::time::sleep(DRAIN_BODY_TIMEOUT).await,
        }
    };
    let read = tokio::select! {
        whole = whole => Ok(whole),
        () = late => Err(()),
    };
    match read {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is too large",
        )),
        Ok(Err(_)) => Err(Failure::bad("the request's body could not be read")),
        Err(()) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "the request's body took too long",
        )),
    }
}

/// Ready means that pages can be scraped. With `verbose` it also tells whether usage is reported to the cluster; the log
/// says why not.
async fn ready(shared: Arc<ServerState>, verbose: bool) -> Result<Reply, Failure> {
    if shared.draining.has_begun() {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "stopping"));
    }
    let reporting = match shared.backend.reporting() {
        None => "",
        Some(true) => "reporting: yes\n",
        Some(false) => "reporting: no\n",
    };
    let details = shared.backend.details();
    match blocking(move || shared.backend.ready()).await? {
        Ok(()) if verbose => Ok(response::plain(format!("ok\n{reporting}{details}"))),
        Ok(()) => Ok(response::plain("ok")),
        Err(missing) => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, missing)),
    }
}

/// Long enough that only containers never read are read again.
const ANY_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

async fn metrics(
    shared: &Arc<ServerState>,
    dialect: Dialect,
    headers: &HeaderMap,
    query: &Query,
) -> Result<Reply, Failure> {
    let options = match (Options::parse(query), dialect) {
        (Ok(options), _) => options,
        (Err(error), Dialect::Cadvisor) => {
            let told = format!("No metrics gathered, last error:\n\n{error}");
            return Err(Failure::internal(told));
        }
        // The kubelet's page knows no options, so none is wrong.
        (Err(_), Dialect::Kubelet) => Options::default(),
    };
    let also = match dialect {
        Dialect::Cadvisor => GroupSet::EMPTY,
        // On that page although it is off by default.
        Dialect::Kubelet => GroupSet::of(&[Group::Process]),
    };
    let told = options.max_age.or_else(|| page_age(shared));
    if told.is_some() || also != GroupSet::EMPTY {
        let all = shared.backend.observer().store.all();
        let paths = all.iter().map(|c| Arc::clone(c.path())).collect();
        wait_for_sample(shared, paths, told.unwrap_or(ANY_AGE), also).await;
    }
    let only = match options.by {
        By::Path => None,
        By::Alias(namespace) => Some(namespace),
    };
    let of = Arc::clone(shared);
    exposition(shared, &shared.pages, headers, move || {
        let page = of.backend.metrics_page(dialect, only);
        page.map_err(|error| {
            Failure::internal(format!("No metrics gathered, last error:\n\n{error}"))
        })
    })
    .await
}

/// Samples older than this are taken again for a page, where sampling is slow.
fn page_age(shared: &ServerState) -> Option<Duration> {
    shared.backend.plan().page_age
}

async fn resource(shared: &Arc<ServerState>, headers: &HeaderMap) -> Result<Reply, Failure> {
    if let Some(age) = page_age(shared) {
        wait_for_sample(shared, Vec::new(), age, GroupSet::EMPTY).await;
    }
    let of = Arc::clone(shared);
    exposition(shared, &shared.pages, headers, move || {
        Ok(kubelet::resource(of.backend.observer()).into())
    })
    .await
}

async fn own_metrics(shared: &Arc<ServerState>, headers: &HeaderMap) -> Result<Reply, Failure> {
    let of = Arc::clone(shared);
    exposition(shared, &shared.own, headers, move || {
        let mut page = of.backend.self_metrics();
        page.families(of.counters.families());
        Ok(page)
    })
    .await
}

async fn exposition(
    shared: &ServerState,
    permits: &Arc<Semaphore>,
    headers: &HeaderMap,
    gather: impl FnOnce() -> Result<Gathered, Failure> + Send + 'static,
) -> Result<Reply, Failure> {
    let zipped = response::wants_gzip(headers);
    let format = Format::wanted(headers);
    let body = shared.render_streaming(permits, move |out| {
        let page = gather()?;
        match zipped {
            true => {
                let mut zip = GzEncoder::new(out, Compression::fast());
                write(&page, format.form, &mut zip)?;
                zip.finish()?;
            }
            false => write(&page, format.form, out)?,
        }
        Ok(())
    });
    Ok(response::exposition(body.await?, format, zipped))
}

fn write(page: &Gathered, form: Form, out: &mut dyn Write) -> io::Result<()> {
    match form {
        Form::Text => {
            let mut writer = TextWriter::new(out);
            page.write(&mut writer)?;
            writer.finish()
        }
        Form::Delimited => {
            let mut writer = MessageWriter::new(out);
            page.write(&mut writer)?;
            writer.finish()
        }
    }
}

async fn summary(
    shared: &Arc<ServerState>,
    method: &Method,
    query: &Query,
) -> Result<Reply, Failure> {
    if !matches!(*method, Method::GET | Method::POST) {
        let mut reply = response::bare(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        reply
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, POST"));
        return Ok(reply);
    }
    let brief = query.get("only_cpu_and_memory") == Some("true");
    if let Some(age) = page_age(shared) {
        wait_for_sample(shared, Vec::new(), age, GroupSet::EMPTY).await;
    }
    if !brief {
        // Processes are counted on this page although they are off by default.
        let all = shared.backend.observer().store.all();
        let of_runtimes = all.iter().filter(|c| c.lock().identity.is_some());
        let paths = of_runtimes.map(|c| Arc::clone(c.path())).collect();
        wait_for_sample(shared, paths, ANY_AGE, GroupSet::of(&[Group::Process])).await;
    }
    let of = Arc::clone(shared);
    let body = shared.render_streaming(&shared.renders, move |out| {
        let backend = &of.backend;
        let node = backend.node_name();
        let image_fs = match brief {
            true => None,
            false => backend.image_fs(),
        };
        Ok(kubelet::write_summary(
            backend.observer(),
            &node,
            image_fs.as_ref(),
            brief,
            out,
        )?)
    });
    Ok(response::json(body.await?))
}

async fn sources(shared: Arc<ServerState>, query: Query) -> Result<Reply, Failure> {
    let container = query.filled("container").unwrap_or("/").to_owned();
    let asked = container.clone();
    let found = blocking(move || shared.backend.sources(&asked)).await?;
    let Some(paths) = found else {
        let name = plimsoll_golang::strconv::quote(&container);
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!("unknown container {name}"),
        ));
    };
    let mut text = paths.join("\n");
    text.push('\n');
    Ok(response::plain(text))
}

async fn extra(
    shared: &Arc<ServerState>,
    index: usize,
    headers: &HeaderMap,
    query: Query,
) -> Result<Reply, Failure> {
    let Some(route) = shared.extra.get(index) else {
        return Err(Failure::defect());
    };
    let route = Arc::clone(route);
    match route.page {
        ExtraPage::Metrics(_) => {
            exposition(shared, &shared.pages, headers, move || match &route.page {
                ExtraPage::Metrics(gather) => Ok(gather()),
                _ => Err(Failure::defect()),
            })
            .await
        }
        ExtraPage::Text(_) => {
            let headers = headers.clone();
            let answer = blocking(move || match &route.page {
                ExtraPage::Text(answer) => answer(&query, &headers),
                _ => Err(Failure::defect()),
            });
            Ok(response::text(answer.await??))
        }
        ExtraPage::Json(_) => {
            let text = blocking(move || match &route.page {
                ExtraPage::Json(answer) => answer(&query),
                _ => Err(Failure::defect()),
            });
            Ok(response::json(Body::full(text.await??)))
        }
        // The router has sent the client there.
        ExtraPage::Moved(_) => Err(Failure::defect()),
    }
}
