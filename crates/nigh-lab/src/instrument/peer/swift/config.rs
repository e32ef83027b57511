//! The files and commands of a one-machine Swift. Pure: a layout in, texts out.
//!
//! Follows the sample configurations of Swift 2.30 (`proxy-server.conf-sample` and its siblings).

use std::path::PathBuf;

use nigh_terms::SecretKey;

use crate::instrument::peer::keystone::ADMIN;

/// tempauth's user `tester` of the account `test`.
pub(super) const ACCESS_KEY: &str = "test:tester";
/// s3api's `location`.
const REGION: &str = "us-east-1";
pub(super) const DEVICE: &str = "d1";
/// Processes of the proxy and of the object server: what carries the load.
const WORKERS: u32 = 2;
/// The file of the middleware's secret.
const NIGH_SECRET: &str = "nigh-secret";
/// Of RAM for memcached, in MiB: it keeps who is who and where, no objects.
const MEMCACHED_MIB: u32 = 32;

/// Makes the three rings by Swift's own builder, in one process instead of nine runs of its command:
/// arguments are the folder and the ports of account, container and object server.
pub(super) const RING_SCRIPT: &str = "
import os, sys
from swift.common.ring import RingBuilder
folder, ports = sys.argv[1], sys.argv[2:]
for name, port in zip(('account', 'container', 'object'), ports):
    builder = RingBuilder(6, 1, 1)
    builder.add_dev({'region': 1, 'zone': 1, 'ip': '127.0.0.1', 'port': int(port), 'device': 'd1', 'weight': 1.0})
    builder.rebalance()
    builder.get_ring().save(os.path.join(folder, name + '.ring.gz'))
";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) proxy: u16,
    pub(super) account: u16,
    pub(super) container: u16,
    pub(super) object: u16,
    pub(super) memcached: u16,
}

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) folder: PathBuf,
    pub(super) ports: Ports,
    pub(super) secret_key: SecretKey,
    pub(super) options: SwiftOptions,
}

/// What a Swift has beside what all have.
#[derive(Debug, Default)]
pub(super) struct SwiftOptions {
    /// The Keystone that says who asks; tempauth does if there is none.
    pub(super) keystone: Option<KeystoneLogin>,
    pub(super) middleware: Option<NighMiddleware>,
    /// The UDP port that is told of each request, as syslog is.
    pub(super) access_log: Option<u16>,
}

/// Nigh's middleware, as a proxy has it (integrations/swift/README.md).
#[derive(Clone, Debug)]
pub struct NighMiddleware {
    /// The folder that has its package: `integrations/swift/src`.
    pub source: PathBuf,
    /// What it shares with Nigh's nodes.
    pub secret: SecretKey,
    /// Its setting `nodes`: `<id>=<URL>`, separated by blanks.
    pub nodes: String,
}

/// The middleware's name in the pipeline with a blank before it, and its filter.
fn middleware(layout: &Layout) -> (&'static str, String) {
    let Some(NighMiddleware { nodes, .. }) = &layout.options.middleware else { return ("", String::new()) };
    let secret = layout.folder.join(NIGH_SECRET);
    let secret = secret.display();
    let filter = format!(
        "\n[filter:nigh]\npaste.filter_factory = nigh_swift.middleware:filter_factory\nsecret_file = {secret}\n\
         nodes = {nodes}\npush_timeout = 2\ninvalidate_timeout = 2\n"
    );
    (" nigh", filter)
}

/// The filter that logs requests, with a blank before its name, and its description.
fn access_log(layout: &Layout) -> (&'static str, String) {
    let Some(port) = layout.options.access_log else { return ("", String::new()) };
    let filter = format!(
        "\n[filter:proxy-logging]\nuse = egg:swift#proxy_logging\naccess_log_level = INFO\n\
         access_log_udp_host = 127.0.0.1\naccess_log_udp_port = {port}\n"
    );
    (" proxy-logging", filter)
}

#[derive(Debug)]
pub(super) struct KeystoneLogin {
    pub(super) url: String,
    pub(super) password: SecretKey,
}

/// Who says who asks: the filters' names, and their description.
fn auth(layout: &Layout) -> (&'static str, String) {
    let Some(KeystoneLogin { url, password }) = &layout.options.keystone else {
        let secret = layout.secret_key.reveal();
        let filters = format!(
            "[filter:s3api]\nuse = egg:swift#s3api\nlocation = {REGION}\nmax_upload_part_num = 10000\n\n\
             [filter:tempauth]\nuse = egg:swift#tempauth\nuser_test_tester = {secret} .admin\n"
        );
        return ("s3api tempauth", filters);
    };
    let password = password.reveal();
    let filters = format!(
        "[filter:authtoken]\npaste.filter_factory = keystonemiddleware.auth_token:filter_factory\n\
         www_authenticate_uri = {url}\nauth_url = {url}\nauth_type = password\nusername = {ADMIN}\n\
         password = {password}\nproject_name = {ADMIN}\nuser_domain_name = Default\n\
         project_domain_name = Default\ndelay_auth_decision = true\n\n\
         [filter:keystoneauth]\nuse = egg:swift#keystoneauth\noperator_roles = {ADMIN}\n"
    );
    ("authtoken keystoneauth", filters)
}

/// The hash seed, for a machine that has none.
pub(super) fn swift_conf() -> String {
    let seed = SecretKey::random();
    format!(
        "[swift-hash]\nswift_hash_path_suffix = {}\n\n[storage-policy:0]\nname = Policy-0\ndefault = yes\n",
        seed.reveal()
    )
}

/// The configuration files, by name.
pub(super) fn files(layout: &Layout) -> Vec<(String, String)> {
    let Ports { proxy, account, container, object, .. } = layout.ports;
    let mut files = vec![("proxy-server.conf".to_owned(), proxy_conf(layout, proxy))];
    files
        .extend(layout.options.middleware.iter().map(|nigh| (NIGH_SECRET.to_owned(), nigh.secret.reveal().to_owned())));
    for (kind, port, workers) in [("account", account, 1), ("container", container, 1), ("object", object, WORKERS)] {
        files.push((format!("{kind}-server.conf"), storage_conf(layout, kind, port, workers)));
    }
    files
}

fn defaults(layout: &Layout, port: u16, workers: u32) -> String {
    let folder = layout.folder.display();
    let user = rustix::process::getuid();
    let user = if user.is_root() { "root".to_owned() } else { std::env::var("USER").unwrap_or_default() };
    format!(
        "[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nworkers = {workers}\nuser = {user}\nswift_dir = {folder}\n\
         log_level = WARNING\n"
    )
}

fn proxy_conf(layout: &Layout, port: u16) -> String {
    let defaults = defaults(layout, port, WORKERS);
    let memcached = layout.ports.memcached;
    let (auth, filters) = auth(layout);
    let (nigh, nigh_filter) = middleware(layout);
    let (log, log_filter) = access_log(layout);
    format!(
        "{defaults}
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck{log} cache listing_formats bulk {auth} copy slo dlo{nigh} proxy-server

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true

[filter:catch_errors]
use = egg:swift#catch_errors

[filter:gatekeeper]
use = egg:swift#gatekeeper

[filter:healthcheck]
use = egg:swift#healthcheck

[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}

[filter:listing_formats]
use = egg:swift#listing_formats

[filter:bulk]
use = egg:swift#bulk

{filters}
[filter:copy]
use = egg:swift#copy

[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
# Client pacing would slow uploads of many small parts.
rate_limit_after_segment = 10000

[filter:dlo]
use = egg:swift#dlo
{nigh_filter}{log_filter}"
    )
}

fn storage_conf(layout: &Layout, kind: &str, port: u16, workers: u32) -> String {
    let defaults = defaults(layout, port, workers);
    let devices = layout.folder.join("devices");
    let devices = devices.display();
    format!(
        "{defaults}devices = {devices}
mount_check = false
fallocate_reserve = 0

[pipeline:main]
pipeline = healthcheck {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}

[filter:healthcheck]
use = egg:swift#healthcheck
"
    )
}

/// A server, its arguments, and its port if it answers health checks.
pub(super) type Start = (&'static str, Vec<String>, Option<u16>);

/// The servers in the order of starting.
pub(super) fn commands(layout: &Layout) -> Vec<Start> {
    let Ports { proxy, account, container, object, memcached } = layout.ports;
    let arguments = ["-l", "127.0.0.1", "-p", &memcached.to_string(), "-m", &MEMCACHED_MIB.to_string()];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    if rustix::process::getuid().is_root() {
        arguments.extend(["-u".to_owned(), "root".to_owned()]);
    }
    let configured = |(program, port): (&'static str, u16)| {
        let file = format!("{}.conf", program.trim_start_matches("swift-"));
        (program, vec![layout.folder.join(file).display().to_string()], Some(port))
    };
    let servers = [
        ("swift-account-server", account),
        ("swift-container-server", container),
        ("swift-object-server", object),
        ("swift-proxy-server", proxy),
    ];
    [("memcached", arguments, None)].into_iter().chain(servers.map(configured)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let ports = Ports { proxy: 1, account: 2, container: 3, object: 4, memcached: 5 };
        let (folder, secret_key) = (PathBuf::from("/tmp/s"), SecretKey::new("hush"));
        Layout { folder, ports, secret_key, options: SwiftOptions::default() }
    }

    #[test]
    fn every_filter_of_a_pipeline_is_described() {
        let asks = KeystoneLogin { url: "http://127.0.0.1:6/v3".to_owned(), password: SecretKey::new("hush") };
        let with = |options| Layout { options, ..layout() };
        let by_keystone = with(SwiftOptions { keystone: Some(asks), ..SwiftOptions::default() });
        let source = PathBuf::from("/src");
        let nigh = NighMiddleware { source, secret: SecretKey::new("hush"), nodes: "n1=http://h:1".to_owned() };
        let with_nigh = with(SwiftOptions { middleware: Some(nigh), ..SwiftOptions::default() });
        let logged = with(SwiftOptions { access_log: Some(7), ..SwiftOptions::default() });
        let all = [layout(), by_keystone, with_nigh, logged].iter().flat_map(files).collect::<Vec<_>>();
        for (name, text) in all.into_iter().filter(|(name, _)| name != NIGH_SECRET) {
            let pipeline = text.lines().find_map(|line| line.strip_prefix("pipeline = ")).unwrap();
            for part in pipeline.split(' ') {
                let described = text.contains(&format!("[filter:{part}]")) || text.contains(&format!("[app:{part}]"));
                assert!(described, "{name}: {part}");
            }
        }
    }

    #[test]
    fn nothing_listens_beyond_loopback() {
        for (name, text) in files(&layout()) {
            assert!(text.contains("bind_ip = 127.0.0.1\n"), "{name}");
        }
        let (program, arguments, _) = &commands(&layout())[0];
        assert_eq!((*program, &arguments[..2]), ("memcached", &["-l".to_owned(), "127.0.0.1".to_owned()][..]));
    }

    #[test]
    fn the_secret_is_in_the_proxys_configuration_alone() {
        let with_secret: Vec<String> =
            files(&layout()).into_iter().filter(|(_, text)| text.contains("hush")).map(|(name, _)| name).collect();
        assert_eq!(with_secret, ["proxy-server.conf"]);
    }
}
