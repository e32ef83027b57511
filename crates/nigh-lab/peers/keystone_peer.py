"""A Keystone on this machine, for one Swift: `serve FOLDER PASSWORD` prints its port and serves; `register URL
PASSWORD STORE` enters the object store at STORE into its catalog, and prints an application credential as JSON."""
import json
import os
import socket
import subprocess
import sys
import urllib.request

# How long a token lives, in seconds: short, so that a test sees one end; longer than the 30 s before its end at which
# keystoneauth, by which Swift asks, renews its own.
LIFE = 40
CONF = """[database]
connection = sqlite:///{folder}/keystone.db
[token]
provider = fernet
expiration = {life}
allow_expired_window = 0
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[identity]
password_hash_rounds = 4
[cache]
enabled = false
"""


def serve(folder, password):
    conf = os.path.join(folder, "keystone.conf")
    for name in ("fernet", "credential"):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    with open(conf, "w") as out:
        out.write(CONF.format(folder=folder, life=LIFE))
    user, group = str(os.getuid()), str(os.getgid())

    def manage(*arguments):
        program = os.path.join(os.path.dirname(sys.executable), "keystone-manage")
        subprocess.run([program, "--config-file", conf, *arguments], check=True, stdout=sys.stderr)

    manage("db_sync")
    manage("fernet_setup", "--keystone-user", user, "--keystone-group", group)
    manage("credential_setup", "--keystone-user", user, "--keystone-group", group)
    # The catalog names the port, so that it is held from here on.
    held = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{held.getsockname()[1]}/v3"
    urls = [f"--bootstrap-{interface}-url={url}" for interface in ("admin", "internal", "public")]
    manage("bootstrap", "--bootstrap-password", password, "--bootstrap-region-id", "here", *urls)

    os.environ["OS_KEYSTONE_CONFIG_FILES"] = conf
    sys.argv = sys.argv[:1]
    from keystone.server.wsgi import initialize_public_application
    from werkzeug.serving import make_server

    server = make_server(*held.getsockname(), initialize_public_application(), threaded=True, fd=held.fileno())
    print(held.getsockname()[1], flush=True)
    server.serve_forever()


def register(url, password, store):
    token = None

    def post(path, body):
        headers = {"Content-Type": "application/json"}
        if token:
            headers["X-Auth-Token"] = token
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer), answer.headers

    domain = {"name": "Default"}
    user = {"name": "admin", "domain": domain, "password": password}
    identity = {"methods": ["password"], "password": {"user": user}}
    scope = {"project": {"name": "admin", "domain": domain}}
    granted, headers = post("/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
    token = headers["X-Subject-Token"]
    service, _ = post("/services", {"service": {"type": "object-store", "name": "swift"}})
    for interface, region in (("internal", "here"), ("public", "elsewhere"), ("public", "here")):
        where = store if (interface, region) == ("public", "here") else "http://127.0.0.1:1"
        endpoint = {
            "service_id": service["service"]["id"],
            "interface": interface,
            "region_id": region,
            "url": where + "/v1/AUTH_%(tenant_id)s",
        }
        if region != "here":
            post("/regions", {"region": {"id": region}})
        post("/endpoints", {"endpoint": endpoint})
    user_id = granted["token"]["user"]["id"]
    made, _ = post(f"/users/{user_id}/application_credentials", {"application_credential": {"name": "nigh"}})
    made = made["application_credential"]
    print(json.dumps({"id": made["id"], "secret": made["secret"]}))


{"serve": serve, "register": register}[sys.argv[1]](*sys.argv[2:])
