//! The keys of the first namespace and of the namespaces in the settings, made where there is none.

use super::NodeError;
use super::foundation::Foundation;
use crate::credentials::{self, Credentials};

/// Makes the missing keys, and writes all of them into the credentials file, even if a crash interrupted that before.
/// Returns the key of the first namespace, if this start made it.
pub(super) async fn issue(foundation: &Foundation) -> Result<Option<Credentials>, NodeError> {
    let (keys, settings) = (&foundation.keys, &foundation.settings);
    let first = &settings.namespace;
    let (mut all, mut made) = (Vec::new(), None);
    for namespace in std::iter::once(first).chain(settings.namespaces.keys().filter(|name| *name != first)) {
        let of =
            |access_key, secret_key| Credentials { profile: namespace.as_str().to_owned(), access_key, secret_key };
        let known = keys.of_namespace(namespace).into_iter().next();
        if let Some(known) = known.and_then(|id| Some(of(id.clone(), keys.secret(&id)?))) {
            all.push(known);
            continue;
        }
        let (access_key, secret_key) = keys.issue(&*foundation.registry, namespace).await?;
        all.push(of(access_key, secret_key));
        if namespace == first {
            made = all.last().cloned();
        }
    }
    let file = foundation.paths.credentials();
    if all.iter().any(|known| credentials::read(&file, &known.profile).ok().as_ref() != Some(known)) {
        credentials::write(&file, &all)?;
    }
    Ok(made)
}
