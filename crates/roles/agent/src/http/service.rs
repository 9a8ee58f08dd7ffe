//! One request in, one answer out. Knows no sockets, so that it can be asked directly.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ALLOW, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, StatusCode, request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Bytes};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_golang::GoDuration;
use plimsoll_observe::exposition::{Dialect, Gathered, TextWriter};
use plimsoll_observe::rest::By;
use plimsoll_observe::{Group, GroupSet, kubelet};
use plimsoll_serving::auth::{Access, AuthFilter};
use plimsoll_serving::{Panicked, caught};
use tokio::sync::Semaphore;

use super::api::{self, Hub, Options, blocking, fresh};
use super::auth::{Auth, Verdict};
use super::body::{Body, made};
use super::counters::Counters;
use super::messages::MessageWriter;
use super::pages;
use super::reply::{self, Failure, Reply};
use super::route::{Places, Route, route};
use super::server::Shown;
use super::surface::{Half, Surface};
use super::target::Query;
use plimsoll_metrics::negotiate::{Form, Format};

const STREAMS: usize = 256;
/// Who asks a port of metrics for something else.
const ELSEWHERE: &str = "only metrics are served here; everything else is served by HTTPS to whom the cluster lets in, \
                         see --secure-listen and --open-to-all";
/// How long a draining server waits for the rest of a request's body.
const HALF_A_BODY_MAY_TAKE: Duration = Duration::from_millis(500);

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
    /// For the sampler to take the pass that a request asks for.
    pub pass: Duration,
    /// So many pages are under way at once, and as many other large answers: each holds what it is made of.
    pub makers: usize,
    /// For one of them to be over, for those who come when there are as many.
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
            makers: 8,
            turn: Duration::from_secs(3),
            answer: Duration::from_secs(60),
        }
    }
}

/// What is behind this port, and who comes in.
#[derive(Debug, Default)]
pub struct Door {
    pub shown: Shown,
    /// Of the cluster; without it, [`Auth`] alone judges.
    pub gate: Option<AuthFilter>,
}

/// What every request shares.
pub struct Shared {
    pub surface: Arc<dyn Surface>,
    pub door: Door,
    pub places: Places,
    pub limits: Limits,
    pub auth: Arc<Auth>,
    pub counters: Arc<Counters>,
    pub hub: Arc<Hub>,
    pub streams: Arc<Semaphore>,
    /// Of metrics about containers.
    pub pages: Arc<Semaphore>,
    /// Of other large answers.
    pub makers: Arc<Semaphore>,
    /// Of what is short, and shows how the agent is when the others are taken.
    pub own: Arc<Semaphore>,
    /// Begins when the server is to stop.
    pub draining: Shutdown,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(
        surface: Arc<dyn Surface>,
        door: Door,
        places: Places,
        limits: Limits,
        auth: Arc<Auth>,
        counters: Arc<Counters>,
        draining: Shutdown,
    ) -> Self {
        let places_for = |count| Arc::new(Semaphore::new(count));
        let (pages, makers, own) = (limits.makers, limits.makers, limits.makers);
        let hub = Hub::listen(&surface.observer().events);
        Self {
            surface,
            door,
            places,
            limits,
            auth,
            counters,
            hub,
            streams: Arc::new(Semaphore::new(STREAMS)),
            pages: places_for(pages),
            makers: places_for(makers),
            own: places_for(own),
            draining,
        }
    }

    /// The way of every answer that may be large: made in pieces, on a thread that may wait, by one of a bounded number
    /// of makers: whoever reads slowly keeps a place, and must not keep others from what is of another kind.
    pub async fn made<F>(&self, places: &Arc<Semaphore>, make: F) -> Result<Body, Failure>
    where
        F: FnOnce(&mut dyn Write) -> Result<(), Failure> + Send + 'static,
    {
        let turn = Arc::clone(places).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(self.limits.turn, turn).await else {
            return Err(Failure::too_busy());
        };
        made(self.limits.answer, move |out| {
            let _permit = permit;
            make(out)
        })
        .await
    }
}

/// Answers whatever comes, a defect of ours included.
pub async fn serve<B>(shared: Arc<Shared>, request: Request<B>) -> Reply
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let in_flight = shared.counters.request();
    let counters = Arc::clone(&shared.counters);
    let path = request.uri().path();
    let to = route(&shared.places, path, request.uri().query());
    let class = to.class();
    let outcome = caught(&counters.sockets, answer(shared, request, to)).await;
    let reply = outcome.unwrap_or_else(|Panicked| reply::error(&Failure::defect()));
    counters.answered(class, reply.status().as_u16());
    reply::with_length(reply).map(|body| body.accounted(counters, in_flight))
}

async fn answer<B>(shared: Arc<Shared>, request: Request<B>, to: Route) -> Reply
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
        Err(failure) => reply::error(&failure),
    }
}

async fn refused(shared: &Shared, head: &mut request::Parts, to: &Route) -> Option<Reply> {
    // Probes carry no credentials.
    if to.is_probe() {
        return None;
    }
    if shared.door.shown == Shown::Metrics && !to.is_of_metrics() {
        return Some(reply::error(&Failure::new(
            StatusCode::FORBIDDEN,
            ELSEWHERE,
        )));
    }
    match &shared.door.gate {
        Some(gate) => refused_by_cluster(gate, wanted(shared, to), head).await,
        None => refused_by_secrets(&shared.auth, &head.headers, to),
    }
}

/// As kubelets ask about who asks them. Not by path: every account of a cluster may get what is below `/api`. Nothing
/// here changes anything, so it is to get, by whatever method.
fn wanted(shared: &Shared, to: &Route) -> Access {
    Access::resource(ResourceAttributes {
        verb: Some("get".to_owned()),
        version: Some("v1".to_owned()),
        resource: Some("nodes".to_owned()),
        subresource: Some(to.part_of_node().to_owned()),
        name: Some(shared.surface.node_name()),
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
    let mut reply = reply::plain("401 Unauthorized\n");
    *reply.status_mut() = StatusCode::UNAUTHORIZED;
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    Some(reply)
}

async fn try_answer<B>(
    shared: Arc<Shared>,
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
        Route::Healthz => Ok(reply::plain("ok")),
        Route::Readyz => ready(shared, query.get("verbose").is_some()).await,
        Route::Metrics => metrics(&shared, Dialect::Cadvisor, &head.headers, &query).await,
        Route::MetricsCadvisor => metrics(&shared, Dialect::Kubelet, &head.headers, &query).await,
        Route::MetricsResource => resource(&shared, &head.headers).await,
        Route::MetricsSelf => own_metrics(&shared, &head.headers).await,
        Route::MetricsInternal => koordlet(&shared, &head.headers, Half::Internal).await,
        Route::MetricsExternal => koordlet(&shared, &head.headers, Half::External).await,
        Route::StatsSummary => summary(&shared, &head.method, &query).await,
        Route::Sources => sources(shared, query).await,
        Route::Plan => Ok(reply::plain(shared.surface.plan().describe())),
        Route::Remembered => remembered(shared, query).await,
        Route::Validate => {
            let report = blocking(move || shared.surface.validate()).await?;
            Ok(reply::plain(report))
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
        Route::Redirect { to, permanent } => Ok(reply::redirect(&head.method, &to, permanent)),
        Route::NoStats => Ok(reply::bare(StatusCode::NOT_FOUND, "404: Page Not Found")),
        Route::NotFound => Err(Failure::new(StatusCode::NOT_FOUND, "404 page not found")),
        Route::Malformed => Err(Failure::bad("400 Bad Request: malformed path")),
    }
}

async fn read_body<B>(shared: &Shared, body: B) -> Result<Bytes, Failure>
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
            () = shared.draining.begins() => tokio::time::sleep(HALF_A_BODY_MAY_TAKE).await,
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

/// Ready is who can be scraped. Whether the cluster is told of the node, too, is said to those who want to know more; why
/// not is in the log.
async fn ready(shared: Arc<Shared>, verbose: bool) -> Result<Reply, Failure> {
    if shared.draining.has_begun() {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "stopping"));
    }
    let reporting = shared.surface.reporting();
    match blocking(move || shared.surface.ready()).await? {
        Ok(()) if verbose => Ok(reply::plain(match reporting {
            None => "ok\n",
            Some(true) => "ok\nreporting: yes\n",
            Some(false) => "ok\nreporting: no\n",
        })),
        Ok(()) => Ok(reply::plain("ok")),
        Err(missing) => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, missing)),
    }
}

/// Long enough that only containers never read are read again.
const ANY_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

async fn metrics(
    shared: &Arc<Shared>,
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
        let all = shared.surface.observer().store.all();
        let paths = all.iter().map(|c| Arc::clone(c.path())).collect();
        fresh(shared, paths, told.unwrap_or(ANY_AGE), also).await;
    }
    let only = match options.by {
        By::Path => None,
        By::Alias(namespace) => Some(namespace),
    };
    let of = Arc::clone(shared);
    exposition(shared, &shared.pages, headers, move || {
        let page = of.surface.metrics_page(dialect, only);
        page.map_err(|error| {
            Failure::internal(format!("No metrics gathered, last error:\n\n{error}"))
        })
    })
    .await
}

/// Where everything is read seldom, a page has what is older than this read again.
fn page_age(shared: &Shared) -> Option<Duration> {
    shared.surface.plan().page_age
}

async fn resource(shared: &Arc<Shared>, headers: &HeaderMap) -> Result<Reply, Failure> {
    if let Some(age) = page_age(shared) {
        fresh(shared, Vec::new(), age, GroupSet::EMPTY).await;
    }
    let of = Arc::clone(shared);
    exposition(shared, &shared.pages, headers, move || {
        Ok(kubelet::resource(of.surface.observer()).into())
    })
    .await
}

async fn own_metrics(shared: &Arc<Shared>, headers: &HeaderMap) -> Result<Reply, Failure> {
    let of = Arc::clone(shared);
    exposition(shared, &shared.own, headers, move || {
        let mut page = of.surface.self_metrics();
        page.families(of.counters.families());
        Ok(page)
    })
    .await
}

async fn koordlet(shared: &Arc<Shared>, headers: &HeaderMap, half: Half) -> Result<Reply, Failure> {
    let of = Arc::clone(shared);
    exposition(shared, &shared.pages, headers, move || {
        Ok(of.surface.koordlet_metrics(half))
    })
    .await
}

async fn exposition(
    shared: &Shared,
    places: &Arc<Semaphore>,
    headers: &HeaderMap,
    gather: impl FnOnce() -> Result<Gathered, Failure> + Send + 'static,
) -> Result<Reply, Failure> {
    let zipped = reply::wants_gzip(headers);
    let format = Format::wanted(headers);
    let body = shared.made(places, move |out| {
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
    Ok(reply::exposition(body.await?, format, zipped))
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

async fn summary(shared: &Arc<Shared>, method: &Method, query: &Query) -> Result<Reply, Failure> {
    if !matches!(*method, Method::GET | Method::POST) {
        let mut reply = reply::bare(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        reply
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, POST"));
        return Ok(reply);
    }
    let brief = query.get("only_cpu_and_memory") == Some("true");
    if let Some(age) = page_age(shared) {
        fresh(shared, Vec::new(), age, GroupSet::EMPTY).await;
    }
    if !brief {
        // Processes are counted on this page although they are off by default.
        let all = shared.surface.observer().store.all();
        let of_runtimes = all.iter().filter(|c| c.lock().identity.is_some());
        let paths = of_runtimes.map(|c| Arc::clone(c.path())).collect();
        fresh(shared, paths, ANY_AGE, GroupSet::of(&[Group::Process])).await;
    }
    let of = Arc::clone(shared);
    let body = shared.made(&shared.makers, move |out| {
        let surface = &of.surface;
        let node = surface.node_name();
        let image_fs = match brief {
            true => None,
            false => surface.image_fs(),
        };
        Ok(kubelet::write_summary(
            surface.observer(),
            &node,
            image_fs.as_ref(),
            brief,
            out,
        )?)
    });
    Ok(reply::json(body.await?))
}

async fn sources(shared: Arc<Shared>, query: Query) -> Result<Reply, Failure> {
    let container = query.filled("container").unwrap_or("/").to_owned();
    let asked = container.clone();
    let found = blocking(move || shared.surface.sources(&asked)).await?;
    let Some(paths) = found else {
        let name = plimsoll_golang::strconv::quote(&container);
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!("unknown container {name}"),
        ));
    };
    let mut text = paths.join("\n");
    text.push('\n');
    Ok(reply::plain(text))
}

async fn remembered(shared: Arc<Shared>, query: Query) -> Result<Reply, Failure> {
    let metric = query
        .filled("metric")
        .unwrap_or("node_cpu_usage")
        .to_owned();
    let window = match query.filled("window") {
        None => Duration::from_secs(300),
        Some(text) => GoDuration::parse(text)
            .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.to_string()))?
            .duration(),
    };
    let found = blocking(move || shared.surface.remembered(&metric, window)).await?;
    let nothing = || {
        let said = "nothing is remembered here; see --collect-res-used-interval";
        Failure::new(StatusCode::NOT_FOUND, said)
    };
    Ok(reply::json(Body::full(found.ok_or_else(nothing)?)))
}
