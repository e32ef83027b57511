//! Settings of the admin API over TCP.

use serde::{Deserialize, Serialize};

use super::tls::ClientCertificate;

/// The admin API over TCP.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    /// Whether its clients need a certificate beside their key.
    pub client_certificate: ClientCertificate,
}
