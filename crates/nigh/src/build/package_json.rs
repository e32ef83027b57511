//! What `package.json` asks for, as far as Nigh has to know. npm reads the file itself. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The dependencies of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PackageJson {
    dependencies: BTreeMap<String, String>,
    optional_dependencies: BTreeMap<String, String>,
    dev_dependencies: BTreeMap<String, String>,
}

/// What is to be done about the dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// There are none, or `node_modules` has them and nothing else.
    Nothing,
    /// npm installs them. These files and folders of the package's folder are among them.
    Install(Vec<String>),
    /// They cannot be installed elsewhere: why, and what to do.
    Refused(String),
}

impl PackageJson {
    /// Reads the text of the file. The error is why it cannot be read.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// What is to be done, if `is_installed` tells which packages `node_modules` has, and these `locks` of other tools
    /// lie in the folder without one of npm's.
    pub(super) fn need(&self, is_installed: impl Fn(&str) -> bool, other_lock: Option<&str>) -> Need {
        if self.dependencies.is_empty() && self.optional_dependencies.is_empty() {
            return Need::Nothing;
        }
        let has_all = self.dependencies.keys().all(|name| is_installed(name));
        if has_all && !self.dev_dependencies.keys().any(|name| is_installed(name)) {
            return Need::Nothing;
        }
        if let Some(lock) = other_lock {
            let how = match lock {
                "pnpm-lock.yaml" => "pnpm install --prod --config.node-linker=hoisted",
                _ => "yarn install --production",
            };
            return Need::Refused(format!(
                "npm does not read {lock}: run `{how}` in the folder, whose node_modules is then deployed as it is"
            ));
        }
        let mut files = Vec::new();
        for (name, version) in self.dependencies.iter().chain(&self.optional_dependencies) {
            let Some(path) = version.strip_prefix("file:").or_else(|| version.strip_prefix("link:")) else {
                if version.starts_with("workspace:") {
                    return Need::Refused(vendored(name));
                }
                continue;
            };
            let inside = path.trim_start_matches("./");
            if inside.is_empty()
                || inside == "."
                || inside.starts_with(['/', '~'])
                || inside.split('/').any(|part| part == "..")
            {
                return Need::Refused(vendored(name));
            }
            files.push(inside.to_owned());
        }
        Need::Install(files)
    }
}

fn vendored(name: &str) -> String {
    format!(
        "the dependency {name} is no file or folder inside this one: run `npm install --omit=dev --install-links` there, whose \
         node_modules is then deployed as it is"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str, installed: &[&str], lock: Option<&str>) -> Need {
        PackageJson::parse(text).unwrap().need(|name| installed.contains(&name), lock)
    }

    #[test]
    fn dependencies_are_installed_unless_they_are_there_without_those_of_development() {
        let text = r#"{ "dependencies": { "a": "^1", "b": "file:./lib/b.tgz" }, "devDependencies": { "test": "*" } }"#;
        let install = Need::Install(vec!["lib/b.tgz".to_owned()]);
        assert_eq!(need(text, &[], None), install);
        assert_eq!(need(text, &["a"], None), install);
        assert_eq!(need(text, &["a", "b"], None), Need::Nothing);
        assert_eq!(need(text, &["a", "b", "test"], None), install);
        for nothing in ["{}", r#"{ "type": "module", "devDependencies": { "test": "*" } }"#] {
            assert_eq!(need(nothing, &[], Some("yarn.lock")), Need::Nothing);
        }
        assert!(PackageJson::parse("{").is_err());
    }

    #[test]
    fn what_npm_cannot_install_elsewhere_is_refused_with_the_way_out() {
        let refused = |text: &str, lock: Option<&str>| match need(text, &[], lock) {
            Need::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        let plain = r#"{ "dependencies": { "a": "1" } }"#;
        assert!(refused(plain, Some("yarn.lock")).contains("`yarn install --production`"));
        assert!(refused(plain, Some("pnpm-lock.yaml")).contains("node-linker=hoisted"));
        for version in ["file:../b", "link:/b", "file:lib/../../b", "file:.", "workspace:*"] {
            let text = format!(r#"{{ "dependencies": {{ "b": "{version}" }} }}"#);
            assert!(refused(&text, None).contains("the dependency b is no file"), "{version}");
        }
        assert_eq!(need(plain, &["a"], Some("yarn.lock")), Need::Nothing);
    }
}
