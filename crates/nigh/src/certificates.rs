//! `nigh certificates`: a cluster's own authority, and certificates for its processes. Keys exist as files only.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use nigh_rpc::certificates::{Authority, CertificateFacts, describe};
use nigh_rpc::{CertificateFiles, Identity, Role};
use nigh_terms::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::json;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::printable;

/// Subcommands of `nigh certificates`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh certificates init ca --cluster lab               ca/authority.crt and ca/authority.key
  nigh certificates issue ca n1 --address 10.0.0.7      ca/n1.crt and ca/n1.key
  nigh certificates issue ca n1 --address 10.0.0.7 --renew
  nigh certificates show ca/*.crt
  nigh certificates revoke ca n2                        refuse n2 from now on
  nigh certificates authority add ca                    replace the authority: first add the next one,
  nigh certificates authority retire ca                 at last remove the former one

A process needs authority.crt, its own certificate and its key, readable by it alone. authority.key stays where
certificates are issued: who has it can be anybody in the cluster. Replaced files are used from the next connection on,
without a restart.

revoke writes revoked.txt: copy it to all processes, beside authority.crt. They refuse the certificates that it names, and
close their connections, within a second. To replace the authority: add; copy authority.crt to all processes; issue each
certificate with --renew, and copy it; retire; copy authority.crt again. No call fails meanwhile.")]
pub(crate) enum CertificatesCommand {
    /// Make a cluster's authority in a folder
    Init {
        /// The folder; made if it is missing
        folder: PathBuf,
        /// The cluster's name
        #[arg(long)]
        cluster: String,
        /// How many days the authority's certificate is valid
        #[arg(long, default_value_t = 3650)]
        days: u32,
    },
    /// Make keys and certificates for processes, signed by the authority in a folder
    Issue {
        /// The folder of the authority; keys and certificates are written there
        folder: PathBuf,
        /// The processes' names, unique in the cluster
        #[arg(required = true)]
        names: Vec<String>,
        /// The role of the processes
        #[arg(long, value_enum, default_value_t = IssuedRole::Node)]
        role: IssuedRole,
        /// An address or host name to write into the certificates, for other programs; Nigh itself checks only names; may be
        /// repeated
        #[arg(long = "address", value_name = "ADDRESS")]
        addresses: Vec<String>,
        /// How many days the certificates are valid
        #[arg(long, default_value_t = 397)]
        days: u32,
        /// Replace existing files
        #[arg(long)]
        renew: bool,
    },
    /// Refuse the certificates of processes that were made until now
    Revoke {
        /// The folder of the authority; revoked.txt is written there
        folder: PathBuf,
        /// The processes' names
        #[arg(required = true)]
        names: Vec<String>,
        /// The role of the processes
        #[arg(long, value_enum, default_value_t = IssuedRole::Node)]
        role: IssuedRole,
    },
    /// Replace the authority while its certificates are in use
    #[command(subcommand)]
    Authority(AuthorityCommand),
    /// Show the content of certificates
    Show {
        /// Certificate files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Subcommands of `nigh certificates authority`.
#[derive(Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Make the next authority, which signs from now on; both are trusted
    Add {
        /// The folder of the authority
        folder: PathBuf,
        /// How many days the authority's certificate is valid
        #[arg(long, default_value_t = 3650)]
        days: u32,
    },
    /// Remove the former authority, when no certificate of the folder is of it any more
    Retire {
        /// The folder of the authority
        folder: PathBuf,
        /// Remove it even if certificates of it are in use
        #[arg(long)]
        force: bool,
    },
}

/// Of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IssuedRole {
    /// Runs functions and holds objects
    Node,
    /// Dispatches invocations to nodes
    Controller,
    /// A person, or a program of theirs
    Operator,
}

impl IssuedRole {
    const fn role(self) -> Role {
        match self {
            Self::Node => Role::Node,
            Self::Controller => Role::Controller,
            Self::Operator => Role::Operator,
        }
    }
}

/// A certificate, as `show` shows it.
#[derive(Serialize)]
struct CertificateRow {
    file: PathBuf,
    /// Whom it names: `nigh://CLUSTER/ROLE/NAME`.
    identities: Vec<String>,
    hosts: Vec<String>,
    addresses: Vec<IpAddr>,
    serial: String,
    /// Seconds since 1970.
    valid_from: i64,
    valid_until: i64,
    /// Until then; negative if it is over.
    days_left: i64,
}

const DAY_SECONDS: i64 = 24 * 3600;

impl CertificateRow {
    fn new(file: &Path, described: CertificateFacts, now: i64) -> Self {
        let CertificateFacts { uris, hosts, addresses, serial, from, until } = described;
        Self {
            file: file.to_owned(),
            identities: uris,
            hosts,
            addresses,
            serial,
            valid_from: from.unix_timestamp(),
            valid_until: until.unix_timestamp(),
            days_left: (until.unix_timestamp() - now).div_euclid(DAY_SECONDS),
        }
    }

    fn validity(&self, now: i64) -> String {
        match self.days_left {
            _ if now < self.valid_from => "not yet".to_owned(),
            ..0 => "expired".to_owned(),
            days => format!("{days} days"),
        }
    }
}

/// Runs it.
pub(crate) fn run(command: &CertificatesCommand, globals: &Globals) -> Result<(), CliError> {
    match command {
        CertificatesCommand::Init { folder, cluster, days } => {
            let authority = Authority::create(folder, cluster, *days)?;
            let file = authority.files("").authority;
            if globals.json {
                return output::json(&json!({ "cluster": cluster, "authority": file }));
            }
            output::line(format_args!("The authority of {cluster} is {}; keep its key secret", file.display()))
        }
        CertificatesCommand::Issue { folder, names, role, addresses, days, renew } => {
            let authority = Authority::open(folder)?;
            let identities = identities(&authority, *role, names)?;
            let mut issued = Vec::new();
            for identity in &identities {
                let CertificateFiles { authority, certificate, key } =
                    authority.issue(identity, addresses, *days, *renew)?;
                if !globals.json {
                    output::line(format_args!("{identity}: {} and {}", certificate.display(), key.display()))?;
                }
                let identity = identity.uri();
                issued.push(json!({
                    "identity": identity, "authority": authority, "certificate": certificate, "key": key
                }));
            }
            if globals.json { output::json(&issued) } else { Ok(()) }
        }
        CertificatesCommand::Revoke { folder, names, role } => revoke(folder, names, *role, globals),
        CertificatesCommand::Authority(AuthorityCommand::Add { folder, days }) => {
            let file = Authority::add(folder, *days)?.files("").authority;
            if globals.json {
                return output::json(&json!({ "authority": file }));
            }
            output::line(format_args!(
                "{0} has the next authority too: copy it to all processes, then renew their certificates",
                file.display()
            ))
        }
        CertificatesCommand::Authority(AuthorityCommand::Retire { folder, force }) => {
            Authority::retire(folder, *force)?;
            let file = Authority::open(folder)?.files("").authority;
            if globals.json {
                return output::json(&json!({ "authority": file }));
            }
            output::line(format_args!("{} has one authority: copy it to all processes", file.display()))
        }
        CertificatesCommand::Show { files } => show(files, globals),
    }
}

fn identities(authority: &Authority, role: IssuedRole, names: &[String]) -> Result<Vec<Identity>, CliError> {
    let identities = names.iter().map(|name| Identity::new(authority.cluster(), role.role(), name));
    identities.collect::<Result<_, _>>().map_err(|error| CliError::Usage(error.to_string()))
}

fn revoke(folder: &Path, names: &[String], role: IssuedRole, globals: &Globals) -> Result<(), CliError> {
    let authority = Authority::open(folder)?;
    let identities = identities(&authority, role, names)?;
    let list = authority.revoke(&identities)?;
    if globals.json {
        let uris: Vec<String> = identities.iter().map(Identity::uri).collect();
        return output::json(&json!({ "revoked": uris, "list": list }));
    }
    for identity in &identities {
        if !authority.files(identity.name()).certificate.exists() {
            output::remark(format_args!("nigh: {} has no certificate of {identity}", folder.display()));
        }
        output::line(format_args!("{identity} is revoked: copy {} to all processes", list.display()))?;
    }
    Ok(())
}

fn show(files: &[PathBuf], globals: &Globals) -> Result<(), CliError> {
    let now = SystemClock::new().wall().date().unix_timestamp();
    let mut shown = Vec::new();
    for file in files {
        shown.extend(describe(file)?.into_iter().map(|one| CertificateRow::new(file, one, now)));
    }
    if globals.json {
        return output::json(&shown);
    }
    let mut table = output::table(&["IDENTITY", "VALID FOR", "ADDRESSES", "FILE"]);
    for one in &shown {
        let addresses = one.hosts.iter().cloned().chain(one.addresses.iter().map(IpAddr::to_string));
        let cells = [
            one.identities.join(" "),
            one.validity(now),
            addresses.collect::<Vec<_>>().join(" "),
            one.file.display().to_string(),
        ];
        table.add_row(cells.map(|cell| printable::shown(&std::io::stdout(), &cell).into_owned()));
    }
    output::print_table(&table)
}
