//! The keys of the first namespace and of the namespaces in the settings, made where there is none, and the file in which
//! clients on this machine find them.

use std::path::PathBuf;
use std::sync::Arc;

use nigh_engine::{AccessKeys, Registry, RegistryError};
use nigh_terms::{AccessKeyId, Namespace};

use super::{Credentials, read, write};
use crate::state_folder::StateFolderError;

/// The namespaces of the settings, and where their keys are.
pub(crate) struct FirstKeys {
    pub(crate) keys: AccessKeys,
    pub(crate) registry: Arc<dyn Registry>,
    /// The first namespace is the first of them.
    pub(crate) namespaces: Vec<Namespace>,
    /// The credentials file.
    pub(crate) file: PathBuf,
}

impl FirstKeys {
    /// Makes the missing keys. Returns the key of the first namespace, if this call made it.
    pub(crate) async fn issue(&self) -> Result<Option<Credentials>, RegistryError> {
        let mut made = None;
        for namespace in &self.namespaces {
            if self.of(namespace).is_some() {
                continue;
            }
            let (access_key, secret_key) = self.keys.issue(&*self.registry, namespace).await?;
            if Some(namespace) == self.namespaces.first() {
                made = Some(Credentials { profile: namespace.as_str().to_owned(), access_key, secret_key });
            }
        }
        Ok(made)
    }

    /// Writes all keys into the credentials file, if it has others.
    pub(crate) fn write_file(&self) -> Result<(), StateFolderError> {
        let known = self.namespaces.iter().filter_map(|namespace| {
            let access_key = self.of(namespace)?;
            let secret_key = self.keys.secret(&access_key)?;
            Some(Credentials { profile: namespace.as_str().to_owned(), access_key, secret_key })
        });
        let known: Vec<Credentials> = known.collect();
        if known.iter().any(|one| read(&self.file, &one.profile).ok().as_ref() != Some(one)) {
            write(&self.file, &known)?;
        }
        Ok(())
    }

    /// The key that Nigh made for `namespace` and that no other has replaced.
    fn of(&self, namespace: &Namespace) -> Option<AccessKeyId> {
        let clients = self.keys.clients();
        let mut made_here = clients
            .into_iter()
            .filter(|(_, key)| key.namespace == *namespace && key.created.is_none() && key.replaced_by.is_none());
        made_here.next().map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nigh_engine::{KeyDescription, LocalRegistry, StateFile};
    use nigh_terms::Timestamp;

    use super::*;

    #[tokio::test]
    async fn the_file_has_the_key_of_the_settings_and_its_successor_and_no_key_of_an_operator() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap()));
        let keys = AccessKeys::load(&*registry).await.unwrap();
        let (first, second) = (Namespace::new("default").unwrap(), Namespace::new("team-a").unwrap());
        for _ in 0..20 {
            let created = Some(Timestamp(1));
            let key = KeyDescription { created, ..KeyDescription::of_settings(first.clone()) };
            keys.create(&*registry, key).await.unwrap();
        }
        let file = folder.path().join("credentials");
        let issued = FirstKeys {
            keys: keys.clone(),
            registry: Arc::clone(&registry) as Arc<dyn Registry>,
            namespaces: vec![first, second],
            file: file.clone(),
        };
        let made = issued.issue().await.unwrap().unwrap();
        issued.write_file().unwrap();
        assert_eq!(read(&file, "default").unwrap(), made);
        assert!(read(&file, "team-a").is_ok());
        assert!(issued.issue().await.unwrap().is_none(), "both are there");

        let (new, _) = keys.rotate(&*registry, &made.access_key, Duration::from_secs(60)).await.unwrap();
        issued.write_file().unwrap();
        assert_eq!(read(&file, "default").unwrap().access_key, new);
        assert!(issued.issue().await.unwrap().is_none(), "its successor is there");
    }
}
